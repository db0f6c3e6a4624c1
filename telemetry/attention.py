"""Kinds of attention about telemetry."""

from collections.abc import Iterator
from datetime import UTC, datetime

from django.conf import settings
from django.db.models import F, QuerySet

from accounts.models import Client, User
from config.platform.attention import Alert, Finding, Kind, kinds
from telemetry.models import DailyShare


def full(now: datetime) -> QuerySet[Client]:
    today = now.astimezone(UTC).date()
    shares = DailyShare.objects.filter(day=today, holder_id=F("client_id")).values("client_id")
    return Client.objects.filter(pk__in=shares)


def refused(clients: QuerySet[Client], now: datetime) -> Iterator[Finding]:
    # A name of each day: operators are notified of the next one too.
    day = now.astimezone(UTC).date()
    for client in clients.annotate(people=User.objects.number_of("pk")):
        full = {
            "client": client,
            "megabytes": settings.TELEMETRY_DAILY_MB,
            "affected": client.people,
        }
        yield Finding(pk=f"{client.pk} {day}", **full)


kinds.add(
    Kind(
        "telemetry", 270, "Telemetry", "telemetry.view_event", full, then=refused,
        alert=Alert("Find the noisy app, or raise `TELEMETRY_DAILY_MB`.", "at once, daily"),
    )
)  # fmt: skip
