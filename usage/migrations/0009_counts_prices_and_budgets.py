import django.db.models.deletion
from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models.functions import Least
from django.db.models.lookups import GreaterThanOrEqual


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0019_a_chain_is_deleted_as_a_whole"),
        ("usage", "0008_numbers_without_constraints_of_their_own"),
    ]

    operations = [
        migrations.CreateModel(
            name="Budget",
            fields=[
                (
                    "client",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="budget",
                        serialize=False,
                        to="accounts.client",
                    ),
                ),
                ("monthly", models.PositiveBigIntegerField(help_text="In millionths of a dollar.")),
                (
                    "period",
                    models.DateField(
                        help_text="First day of the month that was last summed.", null=True
                    ),
                ),
                (
                    "spent",
                    models.PositiveBigIntegerField(
                        default=0, help_text="In that month, when last summed."
                    ),
                ),
                ("summed_at", models.DateTimeField(null=True)),
                ("warned_at", models.DateTimeField(null=True)),
                ("exceeded_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ("client",),
            },
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="cached_input_price",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="cost",
            field=models.BigIntegerField(
                help_text="In millionths of a dollar, fixed at settlement; empty without prices.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="counted_input",
            field=models.BigIntegerField(
                help_text="The prompt as its tokenizer counted it, before the model's factor.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="input_price",
            field=models.BigIntegerField(
                help_text="At admission, in millionths of a dollar per million tokens.", null=True
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="output_price",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AlterField(
            model_name="alert",
            name="kind",
            field=models.CharField(
                choices=[
                    ("input", "80 % of the month's input tokens"),
                    ("output", "80 % of the month's output tokens"),
                    ("input_all", "all of the month's input tokens"),
                    ("output_all", "all of the month's output tokens"),
                    ("day", "the daily limit"),
                    ("percentile", "95th percentile of shares at 80 %"),
                    ("abandoned", "many abandoned calls"),
                    ("report", "an implausible report by the provider"),
                ],
                max_length=10,
            ),
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
                    ),
                    0,
                ),
                name="usage_tokens_not_below_zero",
            ),
        ),
    ]
