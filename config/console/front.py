"""The front page: the state of the service, in short queries by index or over small tables."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count
from django.urls import reverse

from accounts.models import AuditEvent, User
from config.console.alerts import Alert, alerts
from config.management.nightly import Run, last_runs
from licensing.models import Licence, Standing
from usage.models import UsageRecord

EVENTS_SHOWN = 10
GRACES_SHOWN = 5
GRACE_AHEAD = timedelta(days=14)


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """The content of the front page. ``licences``: status, number and address of its list."""

    licences: list[tuple[str, int, str]]
    in_flight: int
    in_flight_url: str
    alerts: list[Alert]
    nights: list[Run]
    graces: list[Licence]
    events: list[AuditEvent]


def at_a_glance(*, operator: User, now: datetime) -> Glance:
    """The state of the service; the page shows each operator the parts they may see."""
    licences = reverse("admin:licensing_licence_changelist")
    number = dict(Licence.objects.order_by().values_list("status").annotate(Count("pk")))
    return Glance(
        licences=[
            (status, number.get(status, 0), f"{licences}?status={status}")
            for status in Standing.values
        ],
        in_flight=UsageRecord.objects.open().filter(expires_at__gt=now).count(),
        in_flight_url=reverse("admin:usage_runningcall_changelist"),
        alerts=list(alerts(now=now, operator=operator)),
        nights=last_runs(),
        graces=list(
            Licence.objects.select_related("client")
            .filter(status=Standing.GRACE, grace_until__lte=now + GRACE_AHEAD)
            .order_by("grace_until")[:GRACES_SHOWN]
        ),
        events=list(AuditEvent.objects.all()[:EVENTS_SHOWN]),
    )
