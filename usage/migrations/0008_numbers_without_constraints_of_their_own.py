from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations, models

NUMBERS = {
    "usagerecord": {
        "reserved_input": models.BigIntegerField(),
        "reserved_output": models.BigIntegerField(),
        "input_tokens": models.BigIntegerField(default=0),
        "cached_input_tokens": models.BigIntegerField(default=0),
        "output_tokens": models.BigIntegerField(default=0),
        "reasoning_tokens": models.BigIntegerField(default=0),
        "checkpoint_input": models.BigIntegerField(
            null=True, help_text="While it runs: what it has cost so far, as its process last said."
        ),
        "checkpoint_output": models.BigIntegerField(null=True),
    },
    "monthlyusage": {
        **{
            name: models.BigIntegerField(default=0)
            for name in (
                "input_used",
                "input_reserved",
                "output_used",
                "output_reserved",
                "day_used",
                "day_reserved",
                "granted",
            )
        },
        "input_cap": models.BigIntegerField(null=True),
        "output_cap": models.BigIntegerField(null=True),
    },
}


class Migration(migrations.Migration):
    """Drops the constraints of single columns, which one constraint now covers."""

    # As before it: a statement at a time.
    atomic = False

    dependencies = [("usage", "0007_one_constraint_for_all_totals")]

    operations = [
        ValidateConstraint(model_name="usagerecord", name="usage_tokens_not_below_zero"),
        ValidateConstraint(model_name="monthlyusage", name="usage_totals_not_below_zero"),
        *(
            migrations.AlterField(model_name=model, name=name, field=field)
            for model, numbers in NUMBERS.items()
            for name, field in numbers.items()
        ),
    ]
