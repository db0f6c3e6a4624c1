import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models

import config.platform.db.uuid7


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0016_calls_of_a_key"),
    ]

    operations = [
        migrations.CreateModel(
            name="LeftAttempt",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=config.platform.db.uuid7.timed_uuid,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("provider", models.CharField(max_length=40)),
                ("input_tokens", models.BigIntegerField()),
                (
                    "output_tokens",
                    models.BigIntegerField(help_text="What may have been made unseen."),
                ),
                (
                    "cost",
                    models.BigIntegerField(
                        help_text="In millionths of a dollar; empty without prices.", null=True
                    ),
                ),
                ("asked_at", models.DateTimeField()),
                ("left_at", models.DateTimeField()),
                (
                    "record",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="left_attempts",
                        to="usage.usagerecord",
                    ),
                ),
            ],
            options={
                "ordering": ("-left_at", "id"),
                "indexes": [models.Index(fields=["left_at"], name="left_attempt_by_time")],
                "constraints": [
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(
                            django.db.models.functions.comparison.Least(
                                "input_tokens", "output_tokens", "cost"
                            ),
                            0,
                        ),
                        name="left_attempt_not_below_zero",
                    )
                ],
            },
        ),
    ]
