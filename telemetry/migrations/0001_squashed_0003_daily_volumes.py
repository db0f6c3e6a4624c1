"""Events and their daily volumes, as release 1f2697d had them."""

from django.db import migrations, models
from django.db.models import Q

EVENT = {
    "id": models.BigAutoField(primary_key=True, serialize=False),
    "event_id": models.UUIDField(help_text="The shell's own, unique within its client."),
    "client_id": models.UUIDField(help_text="The client of the user at the time."),
    "user_id": models.UUIDField(help_text="Who was signed in."),
    "name": models.CharField(max_length=100),
    "app": models.CharField(
        blank=True, help_text="The micro app; empty: the shell itself.", max_length=60
    ),
    "shell_version": models.CharField(blank=True, max_length=64),
    "occurred_at": models.DateTimeField(help_text="By the shell's clock."),
    "received_at": models.DateTimeField(help_text="By ours."),
    "properties": models.JSONField(default=dict, help_text="Without what looked like a secret."),
}
EVENT_OPTIONS = {
    "ordering": ("-received_at", "-id"),
    "indexes": [
        models.Index(fields=["received_at"], name="telemetry_by_time"),
        models.Index(fields=["name", "received_at"], name="telemetry_by_name"),
        models.Index(
            fields=["app", "shell_version", "received_at"], name="telemetry_by_app_version"
        ),
        models.Index(fields=["app", "received_at"], name="telemetry_by_app"),
    ],
    "constraints": [
        models.UniqueConstraint(
            fields=("event_id", "client_id"), name="telemetry_event_once_per_client"
        ),
        models.CheckConstraint(
            condition=Q(("name", ""), _negated=True), name="telemetry_event_has_a_name"
        ),
    ],
}
DAILY_VOLUME = {
    "id": models.BigAutoField(
        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
    ),
    "day": models.DateField(),
    "app": models.CharField(blank=True, help_text="Empty: the shell itself.", max_length=60),
    "shell_version": models.CharField(blank=True, max_length=64),
    "events": models.PositiveBigIntegerField(),
}
DAILY_VOLUME_OPTIONS = {
    "ordering": ("-day", "app", "shell_version"),
    "constraints": [
        models.UniqueConstraint(
            fields=("day", "app", "shell_version"), name="telemetry_one_volume_a_day"
        ),
    ],
}
# By default a table is only looked after once a fifth of it has changed, which in a large one is weeks of events.
TEND = """
ALTER TABLE telemetry_event SET (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.01,
    autovacuum_analyze_scale_factor = 0.01
);
"""


class Migration(migrations.Migration):
    replaces = [
        ("telemetry", "0001_initial"),
        ("telemetry", "0002_event_by_app"),
        ("telemetry", "0003_daily_volumes"),
    ]
    initial = True
    dependencies = []

    operations = [
        migrations.CreateModel("Event", list(EVENT.items()), EVENT_OPTIONS),
        migrations.CreateModel("DailyVolume", list(DAILY_VOLUME.items()), DAILY_VOLUME_OPTIONS),
        migrations.RunSQL(TEND, migrations.RunSQL.noop),
    ]
