"""Usage alerts to operators: 80 % of a monthly cap, the daily limit, and the 95th percentile of all shares.

An alert is a row, unique for a person, kind and period, written by the statement that settles a call or when a call is
refused. Within a minute a worker queues mail for the waiting rows, in the transaction that marks them as sent: no alert
is mailed twice, none is lost with a process, and many at once are one mail.
"""

import math
from datetime import date, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from usage import mails
from usage.limits import effective_of_all
from usage.models import Alert, MonthlyUsage
from usage.periods import Period
from usage.settlement import SHARE_PERCENT

PERCENTILE = 0.95
# Above so many mails an hour, alerts are gathered into one mail, sent at most four times an hour.
MAILS_AN_HOUR = 10
_MONTHLY = (Alert.Kind.INPUT, Alert.Kind.OUTPUT)
HOUR = timedelta(hours=1)
GATHERED_FOR = timedelta(minutes=15)


class Checked(NamedTuple):
    """The result of a check. ``percentile``: percent of the cap, None if nobody has a cap."""

    noticed: int
    people: int
    percentile: float | None
    told: int


def note_daily_limit(*, user_id: UUID, day: date, used: int, cap: int, now: datetime) -> None:
    """Writes the alert that a person has reached the daily limit, once for each day. Tokens."""
    _note(
        Alert(user_id=user_id, kind=Alert.Kind.DAY, period=day, used=used, cap=cap, noticed_at=now)
    )


def note_report(*, user_id: UUID, reported: int, charged: int, now: datetime) -> None:
    """Writes the alert that a provider's report of a person's call is implausible, once for each day. Tokens."""
    _note(
        Alert(
            user_id=user_id,
            kind=Alert.Kind.REPORT,
            period=Period.of(now).day,
            used=reported,
            cap=charged,
            noticed_at=now,
        )
    )


def _note(alert: Alert) -> None:
    """Writes an alert unless there is one of its kind, person and period."""
    # Further calls cost no write.
    same = Alert.objects.filter(user=alert.user_id, kind=alert.kind, period=alert.period)
    if not same.exists():
        Alert.objects.bulk_create([alert], ignore_conflicts=True)


def check(*, now: datetime, dry_run: bool = False) -> Checked:
    """Checks this month's usage of all people, and mails the waiting alerts; with ``dry_run`` it only checks.

    Notices people above 80 % of a cap that was lowered since their last call and, once a month, that the 95th
    percentile of people's shares (each person's greater one) has reached 80 %.
    """
    month = Period.of(now).month
    shares = _shares(month, now=now)
    percents = _highest(shares)
    percentile = _percentile(percents)
    if dry_run:
        return Checked(0, len(percents), percentile, 0)
    noticed = _notice(shares)
    if percentile is not None and percentile >= SHARE_PERCENT:
        _note_percentile(month, percent=int(percentile), people=len(percents), now=now)
    return Checked(noticed, len(percents), percentile, tell(now=now))


def _shares(month: date, *, now: datetime) -> list[Alert]:
    """An unsaved alert for each person's share of each cap, except caps of 0, which are an operator's refusal."""
    used = MonthlyUsage.objects.filter(period=month, user__erased_at=None)
    totals = {
        user_id: numbers
        for user_id, *numbers in used.values_list("user", "input_used", "output_used")
        if any(numbers)
    }
    caps = effective_of_all(user_ids=totals, now=now)
    return [
        Alert(user_id=user_id, kind=kind, period=month, used=used, cap=cap, noticed_at=now)
        for user_id, numbers in sorted(totals.items())
        if user_id in caps
        for kind, used, cap in zip(_MONTHLY, numbers, caps[user_id], strict=False)
        if cap
    ]


def _highest(shares: list[Alert]) -> list[float]:
    """Each person's greater share in percent, in order."""
    highest: dict[UUID | None, float] = {}
    for each in shares:
        percent = 100 * each.used / each.cap
        highest[each.user_id] = max(percent, highest.get(each.user_id, 0))
    return sorted(highest.values())


def _percentile(values: list[float]) -> float | None:
    """The percentile of ordered values, as PostgreSQL's ``percentile_cont``."""
    if not values:
        return None
    rest, place = math.modf(PERCENTILE * (len(values) - 1))
    low, high = values[int(place)], values[math.ceil(PERCENTILE * (len(values) - 1))]
    return low + rest * (high - low)


def _notice(shares: list[Alert]) -> int:
    """Writes the alerts that are new; returns their number."""
    crossed = [each for each in shares if each.used * 100 >= each.cap * SHARE_PERCENT]
    if not crossed:
        return 0
    written = Alert.objects.filter(kind__in=_MONTHLY, period=crossed[0].period)
    known = set(written.values_list("user", "kind"))
    new = [each for each in crossed if (each.user_id, each.kind) not in known]
    Alert.objects.bulk_create(new, ignore_conflicts=True)
    return len(new)


def tell(*, now: datetime) -> int:
    """Queues mail to operators for the waiting alerts; returns their number.

    One mail for each alert, or one for all of them if that would be more than a few in an hour. Alerts about erased
    people are deleted.
    """
    with transaction.atomic():
        # A call may be settled, and write an alert, after its person has been erased.
        Alert.objects.waiting().filter(user__erased_at__isnull=False).delete()
        waiting = list(Alert.objects.waiting().select_for_update(skip_locked=True).order_by("pk"))
        if not waiting:
            return 0
        lately = Alert.objects.filter(told_at__gt=now - HOUR)
        if lately.count() + len(waiting) <= MAILS_AN_HOUR:
            for alert in _with_people(waiting):
                mails.alert(alert)
        elif lately.filter(told_at__gt=now - GATHERED_FOR).exists():
            return 0
        else:
            mails.alerts(_with_people(waiting))
        return Alert.objects.filter(pk__in=[each.pk for each in waiting]).update(told_at=now)


def _note_percentile(month: date, *, percent: int, people: int, now: datetime) -> None:
    """Writes the alert once a month with its mail, which also states the number of people."""
    with transaction.atomic():
        alert, is_new = Alert.objects.get_or_create(
            user=None,
            kind=Alert.Kind.PERCENTILE,
            period=month,
            defaults={"used": percent, "cap": 100, "noticed_at": now, "told_at": now},
        )
        if is_new:
            mails.percentile(alert, people=people)


def _with_people(alerts: list[Alert]) -> list[Alert]:
    """The alerts with their people and clients, whose rows need no lock."""
    ids = [each.pk for each in alerts]
    return list(
        Alert.objects.filter(pk__in=ids).select_related("user__client").order_by("user__email")
    )
