from django.db import migrations, models

# Months that are already counted are counted again, into these tables as well.
COUNT_ALL = """
UPDATE usage_countedmonth AS counted SET version = '', from_day = month.period
FROM usage_monthlyusage AS month WHERE month.id = counted.month_id
"""


class Migration(migrations.Migration):
    """The totals of daily usage by day and by person and month."""

    dependencies = [
        ("usage", "0027_words_of_calls"),
    ]

    operations = [
        migrations.CreateModel(
            name="DayTotal",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("calls", models.BigIntegerField(default=0)),
                ("errors", models.BigIntegerField(default=0)),
                ("disconnected", models.BigIntegerField(default=0)),
                ("input_tokens", models.BigIntegerField(default=0)),
                ("cached_input_tokens", models.BigIntegerField(default=0)),
                ("output_tokens", models.BigIntegerField(default=0)),
                ("cost", models.BigIntegerField(default=0, help_text="In millionths of a dollar.")),
                ("unpriced", models.BigIntegerField(default=0)),
                ("day", models.DateField()),
                ("model", models.CharField(max_length=120)),
                ("provider", models.CharField(max_length=40)),
            ],
            options={
                "ordering": ("-day", "id"),
                "constraints": [
                    models.UniqueConstraint(fields=("day", "model", "provider"), name="one_day")
                ],
            },
        ),
        migrations.CreateModel(
            name="MonthTotal",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("calls", models.BigIntegerField(default=0)),
                ("errors", models.BigIntegerField(default=0)),
                ("disconnected", models.BigIntegerField(default=0)),
                ("input_tokens", models.BigIntegerField(default=0)),
                ("cached_input_tokens", models.BigIntegerField(default=0)),
                ("output_tokens", models.BigIntegerField(default=0)),
                ("cost", models.BigIntegerField(default=0, help_text="In millionths of a dollar.")),
                ("unpriced", models.BigIntegerField(default=0)),
                ("month", models.DateField()),
                ("client_id", models.UUIDField()),
                ("user_id", models.UUIDField()),
            ],
            options={
                "ordering": ("-month", "id"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("month", "client_id", "user_id"), name="one_month"
                    )
                ],
            },
        ),
        migrations.RunSQL(COUNT_ALL, migrations.RunSQL.noop),
    ]
