"""All that needs attention, in order, each kind found by a short query by index or over a small table.

The front page shows each operator what their roles may see; ``config.composition.attention.watch`` mails some of it.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.models import AuditEvent, Client, ConnectionRevocation, Operator
from accounts.sessions import reuse
from config.composition.attention import finding as find
from config.composition.attention.kinds import Item, Kind, Level, items_of
from config.console.navigation import Count
from licensing.models import Brake, Licence, Standing
from llmproxy.models import Provider
from releases.models import ShellChannel
from usage.alerts import cap_alerts
from usage.budgets import warned
from usage.models import Alert, Override, Stop, UsageRecord
from usage.periods import Period

GRACE_AHEAD = timedelta(days=14)
DECISION_AHEAD = timedelta(days=7)
OVERRIDE_AHEAD = timedelta(days=3)
SHOWN_FOR = timedelta(days=1)
# A worker settles abandoned calls every minute.
SWEEP_OVERDUE = timedelta(minutes=3)


def _licences(now: datetime) -> Any:
    """Graces and the decisions of operators that end soon."""
    grace = Q(status=Standing.GRACE, grace_until__lte=now + GRACE_AHEAD)
    decision = Q(operator_until__gt=now, operator_until__lte=now + DECISION_AHEAD)
    rows = Licence.objects.filter(grace | decision).select_related("client")
    return rows.order_by("grace_until", "operator_until")


def _overrides(now: datetime) -> Any:
    ends = {"ends_at__gt": now, "ends_at__lte": now + OVERRIDE_AHEAD}
    return (
        Override.objects.filter(starts_at__lte=now, **ends)
        .select_related("user")
        .order_by("ends_at")
    )


def _alerts(now: datetime) -> Any:
    lately = Q(told_at=None) | Q(told_at__gt=now - SHOWN_FOR)
    kinds = (Alert.Kind.ABANDONED, Alert.Kind.REPORT, Alert.Kind.UNREAD)
    return Alert.objects.filter(lately, kind__in=kinds).select_related("user")


ACT = Level.ACT
JOBS, LIMITS = "Jobs & nights", "Limits & budgets"
JOB, AUDIT = "procrastinate.view_procrastinatejob", "accounts.view_auditevent"
LICENCE, ALERT = "licensing.view_licence", "usage.view_alert"
PROVIDER, CHANNEL = "llmproxy.view_provider", "releases.view_shellchannel"
ONE = "1 person"
# fmt: off
KINDS: tuple[Kind, ...] = (
    Kind("worker", JOBS, JOB, find.worker, ACT, is_mailed=True),
    Kind("clock", JOBS, JOB, find.clock, ACT, is_mailed=True),
    Kind("queue", JOBS, JOB, find.overdue_jobs, ACT, then=find.counted_jobs, is_mailed=True),
    Kind("failed_jobs", JOBS, JOB, ProcrastinateJob.objects.filter(status="failed"), ACT, on="job",
         then=find.counted_jobs, is_mailed=True),
    Kind("night", JOBS, AUDIT, find.nights, is_mailed=True),
    Kind("syslog", "Audit", AUDIT, find.syslog, ACT, is_mailed=True),
    Kind("signing_key", "Sessions & keys", "accounts.view_signingkey", find.signing_key, ACT, whom="everybody"),
    Kind("reuse", "Sessions & keys", "accounts.view_session",
         lambda now: AuditEvent.objects.filter(action=reuse.ACTION, at__gt=now - SHOWN_FOR),
         ACT, on="user", acts="revoke", whom=ONE, then=find.reused),
    Kind("clients", "Clients", "accounts.view_client", Client.objects.filter(licence=None), ACT, shown=0),
    Kind("operators", "Operators", "accounts.view_operator", Operator.objects.filter(client__isnull=False), shown=0),
    Kind("suspensions", "Clients", "licensing.view_brake", Brake.objects.filter(ended_at=None, confirmed_at=None),
         ACT, "noticed_at", acts="confirm"),
    Kind("licence", "Clients", LICENCE, _licences, since="changed_at", acts="status"),
    Kind("budget", LIMITS, "usage.view_budget", lambda now: warned(month=Period.of(now).month),
         on="client", acts="budget", then=find.budgets),
    Kind("cap", LIMITS, ALERT, cap_alerts, whom=ONE, then=find.caps),
    Kind("override", LIMITS, "usage.view_override", _overrides, since="starts_at", whom=ONE),
    Kind("stopped", "People", "usage.view_stop", lambda now: Stop.objects.in_force(at=now).select_related("user"),
         since="stopped_at", on="user", acts="restart_calls", whom=ONE),
    Kind("calls", "Calls", "usage.view_runningcall",
         lambda now: UsageRecord.objects.abandoned(at=now - SWEEP_OVERDUE),
         ACT, "expires_at", shown=0),
    Kind("alert", "Calls", ALERT, _alerts, since="noticed_at", on="user", whom=ONE, then=find.unusual),
    Kind("default_model", "Models", "llmproxy.view_languagemodel", find.default_model),
    Kind("unpriced", "Models", "llmproxy.view_route", find.unpriced(), acts="prices"),
    Kind("provider", "Providers", PROVIDER, find.providers, on="route", acts="try"),
    Kind("fetching", "Providers", PROVIDER, Provider.objects.filter(fetches=Provider.Fetches.BEFORE),
         then=find.fetching),
    Kind("members", "Providers", PROVIDER, find.members),
    Kind("channel", "Channels", CHANNEL,
         ShellChannel.objects.filter(Q(halted_at__isnull=False) | Q(unplaced_since__isnull=False)),
         ACT, on="channel", acts="roll_back resume", then=find.channels),
    Kind("not_stored", "Channels", CHANNEL, find.not_stored, ACT, "published_at"),
    Kind("not_purged", "Channels", CHANNEL, find.not_purged, Level.WATCH, "asked_at", "channel", "purge"),
    Kind("telemetry", "Telemetry", "telemetry.view_event", find.full_of_telemetry,
         then=find.refused_telemetry, is_mailed=True),
    Kind("connections", "People", "accounts.view_connectionrevocation",
         ConnectionRevocation.objects.filter(gave_up_at__isnull=False),
         ACT, "gave_up_at", shown=0),
)
# fmt: on
# What this process last found, for the sidebar of every page, which asks the database nothing.
_last_found: list[Item] = []


def items(*, now: datetime, operator: Any = None) -> list[Item]:
    """What needs attention now of what an operator may see, by level and then the newest first."""
    kinds = (each for each in KINDS if operator is None or operator.has_perm(each.right))
    return sorted(items_of(kinds, now=now), key=_urgency)


def by_mail(*, now: datetime, also: Collection[str] = ()) -> Iterator[Item]:
    """What operators are mailed about, and all of further kinds."""
    kinds = (each for each in KINDS if each.is_mailed or each.name in also)
    found = items_of(kinds, now=now, whole=True)
    return (item for item in found if item.is_mailed or item.kind.name in also)


def look(*, now: datetime) -> None:
    """Finds everything for the counts of the sidebar."""
    _last_found[:] = items(now=now)


def counts(operator: Any, found: Sequence[Item] | None = None) -> dict[str, Count]:
    """The number of items by entry of the sidebar: of ``found``, or as last looked at."""
    shown: dict[str, Count] = {}
    for item in _last_found if found is None else found:
        if operator.has_perm(item.kind.right):
            number, kind = shown.get(item.kind.area, Count(0, "watch"))
            shown[item.kind.area] = Count(number + 1, "" if item.level == Level.ACT else kind)
    return shown


def _urgency(item: Item) -> tuple[Level, bool, float]:
    return item.level, item.since is None, -item.since.timestamp() if item.since else 0
