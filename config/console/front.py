"""The front page: the state of the service, in short queries by index or over small tables."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count
from django.urls import reverse

from accounts.models import AuditEvent, User
from config.console.alerts import alerts
from config.management.nightly import last_runs
from licensing.models import Licence, Standing
from usage.models import UsageRecord

EVENTS_SHOWN = 10
GRACES_SHOWN = 5
GRACE_AHEAD = timedelta(days=14)


def at_a_glance(*, operator: User, now: datetime) -> dict[str, Any]:
    """The content of the front page, which shows each operator the parts they may see.

    ``licences``: status, number and address of its list.
    """
    licences = reverse("admin:licensing_licence_changelist")
    number = dict(Licence.objects.order_by().values_list("status").annotate(Count("pk")))
    graces = Licence.objects.select_related("client").order_by("grace_until")
    in_grace = graces.filter(status=Standing.GRACE, grace_until__lte=now + GRACE_AHEAD)
    return {
        "licences": [
            (status, number.get(status, 0), f"{licences}?status={status}")
            for status in Standing.values
        ],
        "in_flight": UsageRecord.objects.open().filter(expires_at__gt=now).count(),
        "in_flight_url": reverse("admin:usage_runningcall_changelist"),
        "alerts": list(alerts(now=now, operator=operator)),
        "nights": last_runs(),
        "graces": list(in_grace[:GRACES_SHOWN]),
        "events": list(AuditEvent.objects.all()[:EVENTS_SHOWN]),
    }
