"""Telemetry events that shells report, their daily volumes, and what people store in a day."""

from datetime import datetime

from django.db import models


class EventQuerySet(models.QuerySet["Event"]):
    def received_between(self, start: datetime, end: datetime) -> "EventQuerySet":
        """Events received at ``start`` or later, and before ``end``."""
        return self.filter(received_at__gte=start, received_at__lt=end)


class Event(models.Model):
    """One event. It names its client and user by value, so that intake takes no lock on their rows.

    Every index except the unique one grows at its end, or at one end for each name or version, so that intake
    touches few pages however many rows there are.
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
    """The number of events of an app and shell version received on one day (UTC), counted once the day is over.

    It outlives its events. Intake does not touch it, because batches of one version would wait for each other.
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


class DailyShare(models.Model):
    """The bytes of the events that a person has stored on one day (UTC), counted as they are stored.

    A row of each person, so that no batch waits for another person's. A row that the client itself holds says that a
    batch was refused on that day.
    """

    day = models.DateField()
    client_id = models.UUIDField()
    holder_id = models.UUIDField(help_text="The person, or the client itself.")
    bytes = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ("-day", "client_id", "holder_id")
        constraints = (
            models.UniqueConstraint(
                fields=("day", "client_id", "holder_id"), name="telemetry_one_share_a_day"
            ),
        )

    def __str__(self) -> str:
        return f"{self.day} {self.holder_id}: {self.bytes}"
