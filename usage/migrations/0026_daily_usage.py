import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.lookups
from django.conf import settings
from django.db import migrations, models

# Every month of the ledger wants to be counted; the worker does so in steps, the newest first.
COUNT_ALL = """
INSERT INTO usage_countedmonth (month_id, version, from_day)
SELECT id, '', period FROM usage_monthlyusage
"""


class Migration(migrations.Migration):
    """The ledger's daily sums. Processes of the release before know neither table, and what they settle is counted."""

    dependencies = [
        ("usage", "0025_refusals"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="CountedMonth",
            fields=[
                (
                    "month",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="counted",
                        serialize=False,
                        to="usage.monthlyusage",
                    ),
                ),
                ("version", models.CharField(blank=True, max_length=40)),
                ("from_day", models.DateField()),
            ],
            options={
                "ordering": ("-month",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("version", "")),
                        fields=["month"],
                        name="months_to_count",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DailyUsage",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                ("client_id", models.UUIDField()),
                ("model", models.CharField(max_length=120)),
                ("provider", models.CharField(max_length=40)),
                ("calls", models.BigIntegerField(default=0)),
                ("errors", models.BigIntegerField(default=0)),
                ("disconnected", models.BigIntegerField(default=0)),
                ("input_tokens", models.BigIntegerField(default=0)),
                ("cached_input_tokens", models.BigIntegerField(default=0)),
                ("output_tokens", models.BigIntegerField(default=0)),
                ("cost", models.BigIntegerField(default=0, help_text="In millionths of a dollar.")),
                ("unpriced", models.BigIntegerField(default=0)),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ("-day", "id"),
                "indexes": [
                    models.Index(fields=["client_id", "day"], name="daily_usage_by_client"),
                    models.Index(fields=["user", "day"], name="daily_usage_by_person"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "client_id", "user", "model", "provider"),
                        name="one_row_of_daily_usage",
                    ),
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(
                            django.db.models.functions.comparison.Least(
                                "calls",
                                "errors",
                                "disconnected",
                                "input_tokens",
                                "cached_input_tokens",
                                "output_tokens",
                                "cost",
                                "unpriced",
                            ),
                            0,
                        ),
                        name="daily_usage_not_below_zero",
                    ),
                ],
            },
        ),
        migrations.RunSQL(COUNT_ALL, migrations.RunSQL.noop),
    ]
