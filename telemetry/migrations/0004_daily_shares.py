from django.db import migrations, models


class Migration(migrations.Migration):
    """Counts stored telemetry by person and day, from now on."""

    dependencies = [("telemetry", "0001_squashed_0003_daily_volumes")]

    operations = [
        migrations.CreateModel(
            name="DailyShare",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                ("client_id", models.UUIDField()),
                ("holder_id", models.UUIDField(help_text="The person, or the client itself.")),
                ("bytes", models.PositiveBigIntegerField(default=0)),
            ],
            options={
                "ordering": ("-day", "client_id", "holder_id"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "client_id", "holder_id"), name="telemetry_one_share_a_day"
                    )
                ],
            },
        ),
    ]
