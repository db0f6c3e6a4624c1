from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models.functions import Least
from django.db.models.lookups import GreaterThanOrEqual


class Migration(migrations.Migration):
    dependencies = [("usage", "0017_left_attempts")]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="cache_write_tokens",
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="cache_write_price",
            field=models.BigIntegerField(null=True),
        ),
        migrations.RemoveConstraint(model_name="usagerecord", name="usage_tokens_not_below_zero"),
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
                        "counted_input",
                        "input_price",
                        "cached_input_price",
                        "output_price",
                        "cost",
                        "cache_write_tokens",
                        "cache_write_price",
                    ),
                    0,
                ),
                name="usage_tokens_not_below_zero",
            ),
        ),
    ]
