from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Least
from django.db.models.lookups import GreaterThanOrEqual


class Migration(migrations.Migration):
    """Processes of the release before name none of these columns: what they settle counts in full."""

    dependencies = [("usage", "0021_abandoned_attempts_by_client")]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="cached_input_percent",
            field=models.SmallIntegerField(
                db_default=100,
                default=100,
                help_text="How much of the cached input counts towards the caps, by the plan at admission.",
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="capped_input",
            field=models.BigIntegerField(
                help_text="The input that counts towards the caps; empty: all of it.", null=True
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="checkpoint_cached",
            field=models.BigIntegerField(null=True),
        ),
        migrations.RemoveConstraint(model_name="usagerecord", name="usage_tokens_not_below_zero"),
        # Checked for new rows from here on; the next migration looks at the others without stopping anyone.
        AddConstraintNotValid(
            model_name="usagerecord",
            constraint=models.CheckConstraint(
                condition=Q(capped_input=None) | Q(capped_input__lte=F("input_tokens")),
                name="usage_capped_input_is_a_part",
            ),
        ),
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
                        "capped_input",
                        "checkpoint_cached",
                    ),
                    0,
                ),
                name="usage_tokens_not_below_zero",
            ),
        ),
    ]
