"""What operators are told of usage, once each: 80 % of a monthly cap, the daily limit, and the 95th percentile.

Noticing is a row, unique for a person, kind and period, written by the statement that settles a call or by the
refusal of one. Telling is the worker's: within a minute it queues mail for the rows that wait, in the transaction
that marks them told. So nothing is told twice, nothing is lost with a process, and many at once are one mail.
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
# More mails an hour than this are gathered into one, and those come at most four times an hour.
MAILS_AN_HOUR = 10
_MONTHLY = (Alert.Kind.INPUT, Alert.Kind.OUTPUT)
HOUR = timedelta(hours=1)
GATHERED_FOR = timedelta(minutes=15)


class Checked(NamedTuple):
    """The result of a check. ``percentile``: percent of the cap, None where nobody has one."""

    noticed: int
    people: int
    percentile: float | None
    told: int


def note_daily_limit(*, user_id: UUID, day: date, used: int, cap: int, now: datetime) -> None:
    """Notes that somebody has reached the daily limit; once a person and day. Tokens."""
    alert = Alert(
        user_id=user_id, kind=Alert.Kind.DAY, period=day, used=used, cap=cap, noticed_at=now
    )
    # A caller who goes on asking costs no write.
    if not Alert.objects.filter(user=user_id, kind=Alert.Kind.DAY, period=day).exists():
        Alert.objects.bulk_create([alert], ignore_conflicts=True)


def check(*, now: datetime, dry_run: bool = False) -> Checked:
    """Looks at the month of everybody who has used any of it, and tells operators what waits to be told.

    Notes who stands at 80 % of a cap that was lowered since their last call, and, once a month, that the 95th
    percentile of people's shares (each the greater of their two) has come to 80 %. With ``dry_run`` it only looks.
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
    """The alert that each person's share of each cap would be. A cap of 0 is an operator's refusal and no budget."""
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
    """Each person's share in percent, the greater of their two."""
    highest: dict[UUID | None, float] = {}
    for each in shares:
        percent = 100 * each.used / each.cap
        highest[each.user_id] = max(percent, highest.get(each.user_id, 0))
    return sorted(highest.values())


def _percentile(values: list[float]) -> float | None:
    """As PostgreSQL's ``percentile_cont``, of values in order."""
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
    noted = set(
        Alert.objects.filter(kind__in=_MONTHLY, period=crossed[0].period).values_list(
            "user", "kind"
        )
    )
    new = [each for each in crossed if (each.user_id, each.kind) not in noted]
    Alert.objects.bulk_create(new, ignore_conflicts=True)
    return len(new)


def tell(*, now: datetime) -> int:
    """Queues mail to operators for what they have not been told of; gives the number of alerts told.

    One mail each; where that would be more than a few in an hour, one for all that wait. Of who is erased nobody is
    told.
    """
    with transaction.atomic():
        # A call that outlives its person is settled, and so may be noticed, when their alerts are gone.
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
    """With its mail, which has no other chance to say of how many people it speaks."""
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
    """The same with who they are about and their clients, which a lock need not hold."""
    ids = [each.pk for each in alerts]
    return list(
        Alert.objects.filter(pk__in=ids).select_related("user__client").order_by("user__email")
    )
