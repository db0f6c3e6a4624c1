"""Events that shells report about themselves."""

from datetime import datetime
from typing import Literal

from django.db import connection, models

# Every value of a column that is the first of an index, or the next after others that are given, one index look-up
# each: a DISTINCT would read the whole table.
_KNOWN = """
WITH RECURSIVE known AS (
    (SELECT {column} AS value FROM telemetry_event WHERE {given} ORDER BY {column} LIMIT 1)
    UNION ALL
    SELECT (SELECT {column} FROM telemetry_event WHERE {given} AND {column} > known.value
            ORDER BY {column} LIMIT 1)
    FROM known WHERE known.value IS NOT NULL
)
SELECT value FROM known WHERE value IS NOT NULL LIMIT %(most)s
"""
MOST_KNOWN = 100


class EventQuerySet(models.QuerySet["Event"]):
    def received_before(self, at: datetime) -> "EventQuerySet":
        return self.filter(received_at__lt=at)

    def known(
        self, column: Literal["name", "app", "shell_version"], *, app: str | None = None
    ) -> list[str]:
        """The values there are, in order, 100 at most; versions only of an app."""
        assert (column == "shell_version") == (app is not None)
        statement = _KNOWN.format(column=column, given="true" if app is None else "app = %(app)s")
        with connection.cursor() as cursor:
            cursor.execute(statement, {"most": MOST_KNOWN, "app": app})
            return [value for (value,) in cursor.fetchall()]


class Event(models.Model):
    """One event. It names its client and person by value: keeping it locks no row of theirs and waits for none.

    Every index but the one that refuses a second copy grows at its end or at one end for each name or version,
    so that what intake touches stays small however many rows there are.
    """

    id = models.BigAutoField(primary_key=True)
    event_id = models.UUIDField(help_text="The shell's own, unique within its client.")
    client_id = models.UUIDField(help_text="The client of the user at the time.")
    user_id = models.UUIDField(help_text="Who was signed in.")
    name = models.CharField(max_length=100)
    app = models.CharField(
        max_length=60, blank=True, help_text="The micro app; empty: the shell itself."
    )
    shell_version = models.CharField(max_length=64, blank=True)
    occurred_at = models.DateTimeField(help_text="By the shell's clock.")
    received_at = models.DateTimeField(help_text="By ours.")
    properties = models.JSONField(default=dict, help_text="Without what looked like a secret.")

    objects = EventQuerySet.as_manager()

    class Meta:
        ordering = ("-received_at", "-id")
        constraints = (
            # The id first: ids that begin with a time then go to one end of the index.
            models.UniqueConstraint(
                fields=("event_id", "client_id"), name="telemetry_event_once_per_client"
            ),
            models.CheckConstraint(condition=~models.Q(name=""), name="telemetry_event_has_a_name"),
        )
        indexes = (
            models.Index(fields=("received_at",), name="telemetry_by_time"),
            models.Index(fields=("name", "received_at"), name="telemetry_by_name"),
            # Not by the longer one below, which is not in the order of time for an app as a whole.
            models.Index(fields=("app", "received_at"), name="telemetry_by_app"),
            models.Index(
                fields=("app", "shell_version", "received_at"), name="telemetry_by_app_version"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.received_at:%Y-%m-%d %H:%M}"


class DailyVolume(models.Model):
    """How many events of an app and shell version were received on a day (UTC), counted once the day was over.

    It stays when the events are pruned. Intake does not touch it: batches of one version would wait for each other.
    """

    day = models.DateField()
    app = models.CharField(max_length=60, blank=True, help_text="Empty: the shell itself.")
    shell_version = models.CharField(max_length=64, blank=True)
    events = models.PositiveBigIntegerField()

    class Meta:
        ordering = ("-day", "app", "shell_version")
        constraints = (
            models.UniqueConstraint(
                fields=("day", "app", "shell_version"), name="telemetry_one_volume_a_day"
            ),
        )

    def __str__(self) -> str:
        return f"{self.day} {self.app} {self.shell_version}: {self.events}"
