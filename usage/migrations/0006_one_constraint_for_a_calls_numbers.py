from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models.functions import Least
from django.db.models.lookups import GreaterThanOrEqual


class Migration(migrations.Migration):
    """One constraint says that no number of a call is below zero, where each column had its own.

    The totals have a migration of theirs: calls lock both tables, and would wait for one while this waits for the other.
    """

    dependencies = [("usage", "0005_large_tables")]

    operations = [
        # Checked for new rows from here on; a later migration looks at the others without stopping anyone.
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
    ]
