"""Usage alerts: caps, the daily limit, the 95th percentile of all shares, and unusual calls.

Operators are told, and of a used-up monthly cap also the client's administrators, where the client names an address.

An alert is a row, unique for a person, kind and period, written by the statement that settles a call or when a call is
refused. Within a minute a worker queues mail for the waiting rows, in the transaction that marks them as sent: no alert
is mailed twice, none is lost with a process, and many at once are one mail.
"""

from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from statistics import quantiles
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import BigIntegerField, Count, Min, Q, QuerySet, Sum, Value

from accounts.models import Client, User
from config.platform.periods import Period, midnight
from usage import mails
from usage.limits import LEAST_OUTPUT, Caps, effective_of_all, small_prompt
from usage.models import Alert, MonthlyUsage, Refusal, UsageRecord
from usage.settlement import SHARE_PERCENT

PERCENTILE = 95
# Above so many mails an hour, alerts are gathered into one mail, sent at most four times an hour.
MAILS_AN_HOUR = 10
_MONTHLY = (Alert.Kind.INPUT, Alert.Kind.OUTPUT)
_ALL = {Alert.Kind.INPUT: Alert.Kind.INPUT_ALL, Alert.Kind.OUTPUT: Alert.Kind.OUTPUT_ALL}
# Calls of one person that are left in an hour, without an alert.
MOST_ABANDONED = 20
# Answers of anybody's calls that could not be read in an hour, without an alert.
MOST_UNREAD = 2
# Of so many alerts, the newest, people are compared with their caps.
COMPARED = 200
_OF_CAPS = [each for each in Alert.Kind if each.startswith(("input", "output", "day"))]
# The codes of refusals by them.
_BY_CAPS = ("monthly_cap_exceeded", "daily_limit_reached")
HOUR = timedelta(hours=1)
GATHERED_FOR = timedelta(minutes=15)


class Checked(NamedTuple):
    """The result of a check. ``percentile``: percent of the cap, None if nobody has a cap."""

    noticed: int
    people: int
    percentile: float | None
    mailed: int


def note_daily_limit(*, user_id: UUID, day: date, used: int, cap: int, now: datetime) -> None:
    """Writes the alert that a person has reached the daily limit, once for each day. Tokens."""
    same = {"user_id": user_id, "kind": Alert.Kind.DAY, "period": day}
    # Further calls cost no write.
    if not Alert.objects.filter(**same).exists():
        alert = Alert(**same, used=used, cap=cap, noticed_at=now)
        Alert.objects.bulk_create([alert], ignore_conflicts=True)


def notice_unusual(*, now: datetime) -> None:
    """Writes the alerts about many abandoned calls of a person, and about several answers that could not be read."""
    lately = Q(opened_at__gt=now - HOUR)
    left = _numbers(UsageRecord.objects.left().filter(lately))
    many = {person: number for person, number in left.items() if number > MOST_ABANDONED}
    _note_unusual(Alert.Kind.ABANDONED, many, most=MOST_ABANDONED, now=now)
    unread = _numbers(UsageRecord.objects.unread().filter(lately))
    if sum(unread.values()) > MOST_UNREAD:
        _note_unusual(Alert.Kind.UNREAD, unread, most=MOST_UNREAD, now=now)


def _numbers(calls: QuerySet[UsageRecord]) -> dict[UUID, int]:
    """The number of these calls by person."""
    return dict(calls.order_by().values_list("user").annotate(number=Count("*")))


def _note_unusual(kind: Alert.Kind, of: Mapping[UUID, int], *, most: int, now: datetime) -> None:
    """Writes an alert about each of these people, once for each day."""
    day = Period.of(now).day
    # Those of the last hour may be of yesterday.
    lately = Q(period=day) | Q(noticed_at__gt=now - HOUR)
    noticed = Alert.objects.filter(lately, kind=kind, user__in=of)
    new = of.keys() - set(noticed.values_list("user", flat=True))
    Alert.objects.bulk_create(
        [
            Alert(
                user_id=user_id, kind=kind, period=day, used=of[user_id], cap=most, noticed_at=now
            )
            for user_id in sorted(new)
        ],
        ignore_conflicts=True,
    )


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
    return Checked(noticed, len(percents), percentile, mail_waiting(now=now))


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
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=100, method="inclusive")[PERCENTILE - 1]


def _notice(shares: list[Alert]) -> int:
    """Writes the alerts that are new; returns their number."""
    crossed = [alert for each in shares for alert in _crossed(each)]
    if not crossed:
        return 0
    kinds = {each.kind for each in crossed}
    written = Alert.objects.filter(kind__in=kinds, period=crossed[0].period)
    known = set(written.values_list("user", "kind"))
    new = [each for each in crossed if (each.user_id, each.kind) not in known]
    # In the order of a settlement, so that neither waits for the other in a circle.
    new.sort(key=lambda each: (each.user_id, each.kind not in _MONTHLY))
    Alert.objects.bulk_create(new, ignore_conflicts=True)
    return len(new)


def _crossed(share: Alert) -> Iterator[Alert]:
    """The alerts of a share: of 80 % of its cap, and of all."""
    if share.used * 100 >= share.cap * SHARE_PERCENT:
        yield share
    kind = Alert.Kind(share.kind)
    least = LEAST_OUTPUT if kind == Alert.Kind.OUTPUT else small_prompt(share.cap)
    if share.cap - share.used < least <= share.cap:
        numbers = {"used": share.used, "cap": share.cap, "noticed_at": share.noticed_at}
        yield Alert(user_id=share.user_id, kind=_ALL[kind], period=share.period, **numbers)


def mail_waiting(*, now: datetime) -> int:
    """Queues mail to operators for the waiting alerts; returns their number.

    One mail for each alert, or one for all of them if that would be more than a few in an hour. Alerts about erased
    people are deleted. A used-up cap leaves nothing to say about its 80 %.
    """
    with transaction.atomic():
        # A call may be settled, and write an alert, after its person has been erased.
        Alert.objects.waiting().filter(user__erased_at__isnull=False).delete()
        waiting = list(Alert.objects.waiting().select_for_update(skip_locked=True).order_by("pk"))
        if not waiting:
            return 0
        told = _with_people(_not_surpassed(waiting))
        lately = Alert.objects.filter(told_at__gt=now - HOUR)
        if lately.count() + len(told) <= MAILS_AN_HOUR:
            for alert in told:
                mails.alert(alert)
        elif lately.filter(told_at__gt=now - GATHERED_FOR).exists():
            return 0
        elif told:
            mails.alerts(told)
        for client, theirs in _used_up_by_client(told).items():
            mails.used_up(client, theirs)
        return Alert.objects.filter(pk__in=[each.pk for each in waiting]).update(told_at=now)


def _not_surpassed(waiting: list[Alert]) -> list[Alert]:
    """The waiting alerts without those of 80 % of a cap that is used up by now."""
    of_all = Alert.objects.filter(
        kind__in=_ALL.values(), user__in=[each.user_id for each in waiting]
    )
    surpassed = set(of_all.values_list("user", "kind", "period"))
    return [
        each for each in waiting if (each.user_id, f"{each.kind}_all", each.period) not in surpassed
    ]


def _used_up_by_client(told: list[Alert]) -> dict[Client, list[Alert]]:
    """The alerts of used-up caps, by client, for the clients that name an address."""
    found: dict[Client, list[Alert]] = {}
    for each in told:
        client = each.user.client if each.user is not None else None
        if each.kind in mails.USED_UP and client is not None and client.alert_email:
            found.setdefault(client, []).append(each)
    return found


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


class Near(NamedTuple):
    """A person's greatest share of a cap, in tokens, and since when operators or the person know of it.

    ``refused`` is the number of today's calls that caps refused.
    """

    user: User
    since: datetime
    what: str
    used: int
    cap: int
    least: int
    refused: int

    @property
    def percent(self) -> int:
        return 100 * self.used // self.cap

    @property
    def is_reached(self) -> bool:
        return self.cap - self.used < self.least


def people_near_caps(now: datetime) -> list[Near]:
    """The people who have used 80 % of a cap or more, or whose calls a cap refused today; reached ones first."""
    noted = _noted(now)
    period, caps = Period.of(now), effective_of_all(user_ids=noted, now=now) if noted else {}
    # Nobody costs no query.
    months = MonthlyUsage.objects.filter(user__in=caps, period=period.month)
    # Of hundreds of people few are listed: their whole rows would cost more than all else.
    needed = ("input_used", "output_used", "day", "day_used", "user__email", "user__client_id")
    months = months.select_related("user").only(*needed)
    shares = [
        max(known, key=lambda each: each.used / each.cap)
        for month in months
        if (known := list(_shares_of(month, caps[month.user_id], *noted[month.user_id], period)))
    ]
    near = [each for each in shares if each.percent >= SHARE_PERCENT or each.refused]
    return sorted(near, key=lambda each: (each.is_reached, each.since), reverse=True)


def _noted(now: datetime) -> dict[UUID, tuple[datetime, int]]:
    """The people of this month's alerts about caps and of today's refusals by caps: since when, and refused calls."""
    period = Period.of(now)
    lately = Q(told_at=None) | Q(told_at__gte=period.month_start)
    alerts = Alert.objects.filter(lately, kind__in=_OF_CAPS, period__in=(period.month, period.day))
    newest = alerts.order_by("-noticed_at")
    none = Value(0, output_field=BigIntegerField())
    refusals = Refusal.objects.filter(code__in=_BY_CAPS, minute__gte=midnight(period.day))
    people = refusals.exclude(user=None).order_by().values_list("user")
    numbers = people.annotate(
        since=Min("minute"), number=Sum("number", output_field=BigIntegerField())
    )
    rows = newest.values_list("user", "noticed_at", none)[:COMPARED].union(
        numbers.order_by("-since")[:COMPARED], all=True
    )
    noted: dict[UUID, tuple[datetime, int]] = {}
    for user_id, since, number in rows:
        if user_id is not None:
            at, refused = noted.get(user_id, (since, 0))
            noted[user_id] = min(at, since), refused + number
    return noted


def _shares_of(
    month: MonthlyUsage, caps: Caps, since: datetime, refused: int, period: Period
) -> Iterator[Near]:
    today = month.day_used if month.day == period.day else 0
    of_month = f"{period.month:%B}’s"
    for what, used, cap, least in (
        (f"{of_month} input cap", month.input_used, caps.input, small_prompt),
        (f"{of_month} output cap", month.output_used, caps.output, lambda _: LEAST_OUTPUT),
        ("today’s limit", today, caps.day, small_prompt),
    ):
        if cap:
            yield Near(month.user, since, what, used, cap, least(cap), refused)
