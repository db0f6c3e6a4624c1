"""Notices to shells, by a licence or by one row for all: a least version, a message, the source of their updates."""

from datetime import UTC, datetime
from typing import Any

from django.db import migrations, models
from django.db.models import Q

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def words(length: int, **options: Any) -> Any:
    return models.CharField(blank=True, db_default="", default="", max_length=length, **options)


def columns() -> list[tuple[str, Any]]:
    levels = [("info", "Information"), ("warning", "Warning"), ("critical", "Critical")]
    return [
        (
            "minimum_version",
            words(
                120,
                help_text="A shell below it shows its update screen alone. Empty: any version works.",
            ),
        ),
        ("message_id", models.UUIDField(blank=True, editable=False, null=True)),
        ("message_level", words(10, choices=levels)),
        ("message_text", words(500, help_text="Plain text.")),
        (
            "message_until",
            models.DateTimeField(
                blank=True,
                help_text="When shells stop showing it. Empty: until it is removed.",
                null=True,
            ),
        ),
        (
            "shell_channel",
            words(
                40,
                help_text="The channel that shells update from. Empty: the one they were built for.",
            ),
        ),
        (
            "shell_version",
            words(
                120,
                help_text="The version that shells are pinned to. Empty: the newest of the channel.",
            ),
        ),
    ]


def checks(model: str) -> list[Any]:
    none = Q(message_id=None, message_text="", message_level="", message_until=None)
    whole = Q(message_id__isnull=False) & ~Q(message_text="") & ~Q(message_level="")
    readable = Q(Q(("message_until__gte", FIRST), ("message_until__lte", LAST)))
    named = {"message_is_whole": none | whole, "message_end_is_readable": readable}
    return [
        migrations.AddConstraint(
            model, models.CheckConstraint(condition=condition, name=f"{model}_{name}")
        )
        for name, condition in named.items()
    ]


class Migration(migrations.Migration):
    dependencies = [("licensing", "0016_held_suspensions")]

    operations = [
        migrations.CreateModel(
            name="ServiceNotice",
            fields=[
                *columns(),
                (
                    "id",
                    models.CharField(
                        default="service",
                        editable=False,
                        max_length=10,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
                "verbose_name": "notice to all shells",
                "verbose_name_plural": "notices to all shells",
                "abstract": False,
            },
        ),
        *(migrations.AddField("licence", name, field) for name, field in columns()),
        *checks("licence"),
        *checks("servicenotice"),
        migrations.AddConstraint(
            "servicenotice",
            models.CheckConstraint(condition=Q(id="service"), name="servicenotice_is_one"),
        ),
        migrations.RunSQL(
            "INSERT INTO licensing_servicenotice (id) VALUES ('service')", migrations.RunSQL.noop
        ),
    ]
