"""The front page: what needs attention, and the state of the service, for each role what it may see."""

from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import admin
from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from accounts.models import AuditEvent
from config.console.attention import listing
from config.console.attention.kinds import Item, Level
from config.management.nightly import Run, last_runs
from licensing.models import Licence, Standing
from usage.models import UsageRecord

EVENTS_SHOWN = 10


class Line(NamedTuple):
    """An item as an operator sees it, with the address of the action that they may take and its label."""

    item: Item
    says: SafeString
    act: tuple[str, str] | None


def at_a_glance(request: HttpRequest, *, now: datetime) -> dict[str, Any]:
    """The content of the front page, which shows each operator the parts they may see.

    ``licences``: status, number and address of its list.
    """
    licences = reverse("admin:licensing_licence_changelist")
    number = dict(Licence.objects.order_by().values_list("status").annotate(Count("pk")))
    found = listing.items(now=now, operator=request.user)
    return {
        "items": found,
        "attention": [_line(request, item) for item in found],
        "act": sum(item.level == Level.ACT for item in found),
        "watch": sum(item.level == Level.WATCH for item in found),
        "licences": [
            (status, number.get(status, 0), f"{licences}?status={status}")
            for status in Standing.values
        ],
        "in_flight": UsageRecord.objects.open().filter(expires_at__gt=now).count(),
        "in_flight_url": reverse("admin:usage_runningcall_changelist"),
        "nights": _nights(last_runs()),
        "events": list(AuditEvent.objects.all()[:EVENTS_SHOWN]),
    }


def _line(request: HttpRequest, item: Item) -> Line:
    on: Any = item.on if item.acts else None
    console: Any = admin.site.get_model_admin(type(on)) if on else None
    labels = {act.name: act.label for act in console.row_actions} if console else {}
    links = ((labels[name], console.link(request, name, on)) for name in item.acts if on)
    return Line(item, item.says(request), next((each for each in links if each[1]), None))


def _nights(runs: list[Run]) -> dict[str, Any]:
    """How the last night ended, for one line."""
    ended = [run.done_at for run in runs if run.done_at]
    return {"jobs": len(runs), "ended": len(ended), "last": max(ended, default=None)}
