from django.db import migrations, models


class Migration(migrations.Migration):
    """Events by day, app and shell version; the next night counts the days there are."""

    dependencies = [("telemetry", "0002_event_by_app")]

    operations = [
        migrations.CreateModel(
            name="DailyVolume",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                (
                    "app",
                    models.CharField(
                        blank=True, help_text="Empty: the shell itself.", max_length=60
                    ),
                ),
                ("shell_version", models.CharField(blank=True, max_length=64)),
                ("events", models.PositiveBigIntegerField()),
            ],
            options={
                "ordering": ("-day", "app", "shell_version"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "app", "shell_version"), name="telemetry_one_volume_a_day"
                    )
                ],
            },
        ),
    ]
