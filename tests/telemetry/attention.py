"""Rows for each kind of attention about telemetry."""

from telemetry.models import DailyShare
from tests.console.bad_days import Day


def bad_day(day: Day) -> None:
    client_id = day.world.client.pk
    DailyShare.objects.create(day=day.now.date(), client_id=client_id, holder_id=client_id)
