from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds the latency and errors of hours, which the worker counts. Processes of the release before know no such table."""

    dependencies = [("usage", "0038_no_index_by_model_alone")]

    operations = [
        migrations.CreateModel(
            name="HourLatency",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("model", models.CharField(max_length=120)),
                ("provider", models.CharField(max_length=40)),
                ("calls", models.BigIntegerField(default=0)),
                ("errors", models.BigIntegerField(default=0)),
                (
                    "failed_attempts",
                    models.BigIntegerField(
                        default=0,
                        help_text="Attempts at this provider that failed, of calls that others may have answered.",
                    ),
                ),
                (
                    "output_tokens",
                    models.BigIntegerField(default=0, help_text="Of streams that were done."),
                ),
                (
                    "output_ms",
                    models.BigIntegerField(
                        default=0, help_text="From their first output to their ends."
                    ),
                ),
                (
                    "first",
                    models.JSONField(
                        default=dict,
                        help_text="Calls that were done by their time to first output: the number of each bucket.",
                    ),
                ),
                (
                    "whole",
                    models.JSONField(
                        default=dict, help_text="The same calls by the time of the whole answer."
                    ),
                ),
            ],
            options={
                "ordering": ("-hour", "id"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hour", "model", "provider"), name="one_row_of_hour_latency"
                    )
                ],
            },
        ),
    ]
