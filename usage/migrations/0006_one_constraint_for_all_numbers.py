from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models.functions import Least
from django.db.models.lookups import GreaterThanOrEqual


class Migration(migrations.Migration):
    """One constraint a table says that no number is below zero, where each column had its own."""

    # A statement at a time: calls lock both tables, and would wait for one while this waits for the other.
    atomic = False

    dependencies = [("usage", "0005_large_tables")]

    operations = [
        # Checked for new rows from here on; the next migration looks at the others without stopping anyone.
        AddConstraintNotValid(
            model_name="usagerecord",
            constraint=models.CheckConstraint(
                condition=GreaterThanOrEqual(
                    Least(
                        "reserved_input",
                        "reserved_output",
                        "input_tokens",
                        "cached_input_tokens",
                        "output_tokens",
                        "reasoning_tokens",
                        "checkpoint_input",
                        "checkpoint_output",
                    ),
                    0,
                ),
                name="usage_tokens_not_below_zero",
            ),
        ),
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
