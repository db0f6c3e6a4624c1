"""Kinds of attention about usage."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, CharField, Q, QuerySet, Value, When

from accounts.models import User
from config.platform.attention import ONE_PERSON, Door, Finding, Kind, Level, kinds
from config.platform.attention import Alert as Notified
from config.platform.periods import Period
from usage.alerts import people_near_caps
from usage.models import Alert, Budget, Override, SpendLimit, Stop, UsageRecord
from usage.spending.budgets import percent_of, warned
from usage.spending.spend_limits import warned as warned_limits

OVERRIDE_AHEAD = timedelta(days=3)
SHOWN_FOR = timedelta(days=1)
# A worker settles abandoned calls every minute.
SWEEP_OVERDUE = timedelta(minutes=3)
# The people at a cap or near one who are named.
CAPS_SHOWN = 5


def warned_budgets(now: datetime) -> QuerySet[Budget]:
    return warned(month=Period.of(now).month)


def budgets(rows: QuerySet[Budget], now: datetime) -> list[Budget]:
    """The budgets that are spent, and then those of 80 % and more, with when they are at this pace."""
    period = Period.of(now)
    people = User.objects.number_of("client_id")
    found: Any = rows.annotate(affected=people).order_by("-exceeded_at", "-warned_at")
    for each in found:
        each.percent, each.since = percent_of(each), each.exceeded_at or each.warned_at
        each.level = Level.ACT if each.exceeded_at else Level.WATCH
        end = now + (now - period.month_start) * ((each.monthly - each.spent) / each.spent)
        each.ends = end if end < period.next_month else None
    return sorted(found, key=lambda each: each.level)


def caps(now: datetime) -> Iterator[Finding]:
    for near in people_near_caps(now):
        level = Level.ACT if near.is_reached or near.refused else Level.WATCH
        yield Finding(pk=near.user.pk, near=near, user=near.user, since=near.since, level=level)


def spending(rows: QuerySet[SpendLimit], now: datetime) -> Iterator[Finding]:
    """The days and months of spending limits that are reached or near it, each an alert of its own."""
    for limit in rows:
        passes = limit.passes(now)
        for span in limit.spans(now):
            since = span.reached_at or span.warned_at
            if since is not None:
                is_stopped = span.reached_at is not None and not passes
                yield Finding(
                    pk=f"{limit.pk} {span.name}{' reached' if span.reached_at else ''}",
                    limit=limit,
                    span=span,
                    since=since,
                    passes=passes,
                    level=Level.ACT if is_stopped else Level.WATCH,
                    acts="pass" if is_stopped else "",
                )


def allowance(cap: Finding) -> Door:
    """The page that grants a person at a cap an extra allowance."""
    return Door("Raise cap", *OVERRIDE, f"user={cap.pk}&on_top=yes")


def another(override: Override) -> Door:
    """The page that grants a person another override."""
    return Door("Extend", *OVERRIDE, f"user={override.user_id}")


def overrides(now: datetime) -> QuerySet[Override]:
    ends = {"ends_at__gt": now, "ends_at__lte": now + OVERRIDE_AHEAD}
    rows = Override.objects.filter(starts_at__lte=now, **ends)
    return rows.select_related("user").order_by("ends_at")


def stops(now: datetime) -> QuerySet[Stop]:
    return Stop.objects.in_force(at=now).select_related("user")


def abandoned(now: datetime) -> QuerySet[UsageRecord]:
    return UsageRecord.objects.abandoned(at=now - SWEEP_OVERDUE)


def recent(now: datetime) -> QuerySet[Alert]:
    lately = Q(told_at=None) | Q(told_at__gt=now - SHOWN_FOR)
    of = (Alert.Kind.ABANDONED, Alert.Kind.REPORT, Alert.Kind.UNREAD)
    # A person who abandons many calls can be stopped; no act helps with an unexplained report or an unread answer.
    abandons = When(kind=Alert.Kind.ABANDONED, then=Value("stop_calls"))
    acts = Case(abandons, default=Value(""), output_field=CharField())
    found = Alert.objects.filter(lately, kind__in=of).annotate(acts=acts)
    return found.select_related("user__model_calls_stop")


OVERRIDE = ("usage.override_add", "usage_override_add")
LIMITS, ALERT = "Limits & budgets", "usage.view_alert"
kinds.add(
    Kind(
        "budget", 130, LIMITS, "usage.view_budget", warned_budgets,
        on="client", acts="budget", client="client_id", then=budgets,
        alert=Notified(
            "Raise it, or notify the client.", "80 %, and once it is spent", is_mailed_by_rule=True
        ),
    ),
    Kind(
        "cap", 140, LIMITS, ALERT, caps,
        affected=ONE_PERSON, client="user.client_id", shown=CAPS_SHOWN, door=allowance,
    ),
    Kind(
        "spend", 125, LIMITS, "usage.view_spendlimit", warned_limits(),
        on="limit", label="Let pass", affected="everybody", then=spending,
        alert=Notified("Raise the limit, or let calls pass today.", "80 %, and once it is reached"),
    ),
    Kind(
        "override", 150, LIMITS, "usage.view_override", overrides,
        since="starts_at", affected=ONE_PERSON, client="user.client_id", door=another,
    ),
    Kind(
        "stopped", 160, "People", "usage.view_stop", stops,
        since="stopped_at", on="user", acts="restart_calls", label="Restart", affected=ONE_PERSON,
        client="user.client_id",
    ),
    Kind(
        "calls", 170, "Calls", "usage.view_runningcall", abandoned,
        Level.ACT, "expires_at", shown=0,
    ),
    Kind(
        "alert", 180, "Calls", ALERT, recent,
        since="noticed_at", on="user", label="Stop calls", affected=ONE_PERSON, client="user.client_id",
    ),
)  # fmt: skip
