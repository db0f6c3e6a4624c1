from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models.functions import Least
from django.db.models.lookups import GreaterThanOrEqual


class Migration(migrations.Migration):
    """One constraint says that no total is below zero, where each column had its own."""

    dependencies = [("usage", "0006_one_constraint_for_a_calls_numbers")]

    operations = [
        # As for calls.
        AddConstraintNotValid(
            model_name="monthlyusage",
            constraint=models.CheckConstraint(
                condition=GreaterThanOrEqual(
                    Least(
                        "input_used",
                        "input_reserved",
                        "output_used",
                        "output_reserved",
                        "day_used",
                        "day_reserved",
                        "granted",
                        "input_cap",
                        "output_cap",
                    ),
                    0,
                ),
                name="usage_totals_not_below_zero",
            ),
        ),
    ]
