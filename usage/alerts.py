"""What operators are told of usage, once each: 80 % of a monthly cap, the daily limit, and the 95th percentile.

Noticing is a row, unique for a person, kind and period, written by the statement that settles a call or by the
refusal of one. Telling is the worker's: within a minute it queues mail for the rows that wait, in the transaction
that marks them told. So nothing is told twice, nothing is lost with a process, and many at once are one mail.
"""

from datetime import date, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction

from usage import mails
from usage.limits import PEOPLE_AND_CAPS
from usage.models import Alert
from usage.periods import Period

SHARE_PERCENT = 80
PERCENTILE = 0.95
# More mails an hour than this are gathered into one, and those come at most four times an hour.
MAILS_AN_HOUR = 10
HOUR = timedelta(hours=1)
GATHERED_FOR = timedelta(minutes=15)

# Somebody's month by kind, of which an alert can tell. A cap of 0 is a word of an operator and no budget.
_KINDS = """
    CROSS JOIN LATERAL (
        VALUES ('input', m.input_used, {caps}.input_cap), ('output', m.output_used, {caps}.output_cap)
    ) AS d (kind, used, cap)
"""
_OF_ALL = f"""
    FROM usage_monthlyusage AS m JOIN {PEOPLE_AND_CAPS} ON u.id = m.user_id {_KINDS.format(caps="c")}
    WHERE m.period = %(period)s AND u.erased_at IS NULL AND d.cap > 0 AND m.input_used + m.output_used > 0
"""


def notice_shares(months: str) -> str:
    """A statement that notes who of these rows of ``MonthlyUsage`` has come to 80 %; it takes ``%(now)s``.

    Who has been noted in this month before costs a look at an index.
    """
    return f"""
    INSERT INTO usage_alert (kind, user_id, period, used, cap, noticed_at)
    SELECT d.kind, m.user_id, m.period, d.used, d.cap, %(now)s
    FROM {months} AS m {_KINDS.format(caps="m")}
    WHERE d.cap > 0 AND d.used * 100 >= d.cap * {SHARE_PERCENT}
    ON CONFLICT DO NOTHING
    """  # noqa: S608 - built from constants of this project


_NOTICE_ALL = f"""
    INSERT INTO usage_alert (kind, user_id, period, used, cap, noticed_at)
    SELECT d.kind, m.user_id, m.period, d.used, d.cap, %(now)s {_OF_ALL}
      AND d.used * 100 >= d.cap * {SHARE_PERCENT}
    ORDER BY m.user_id, d.kind
    ON CONFLICT DO NOTHING
"""

_PERCENTILE = f"""
    SELECT percentile_cont({PERCENTILE}) WITHIN GROUP (ORDER BY share), count(*)
    FROM (SELECT max(100.0 * d.used / d.cap)::float AS share {_OF_ALL} GROUP BY m.user_id) AS shares
"""  # noqa: S608 - as above


# Whether :func:`note_daily_limit` has nothing more to do for ``%(user)s`` on ``%(day)s``.
DAILY_LIMIT_IS_NOTED = f"""
    SELECT EXISTS (
        SELECT 1 FROM usage_alert
        WHERE user_id = %(user)s AND kind = '{Alert.Kind.DAY.value}' AND period = %(day)s
    )
"""  # noqa: S608 - as above


class Checked(NamedTuple):
    """What a look at everybody's month found. ``percentile``: percent of the cap, None where nobody has one."""

    noticed: int
    people: int
    percentile: float | None
    told: int


def note_daily_limit(*, user_id: UUID, day: date, used: int, cap: int, now: datetime) -> None:
    """Notes that somebody has reached the daily limit; once a person and day. Tokens."""
    alert = Alert(
        user_id=user_id, kind=Alert.Kind.DAY, period=day, used=used, cap=cap, noticed_at=now
    )
    Alert.objects.bulk_create([alert], ignore_conflicts=True)


def check(*, now: datetime, dry_run: bool = False) -> Checked:
    """Looks at the month of everybody who has used any of it, and tells operators what waits to be told.

    Notes who stands at 80 % of a cap that was lowered since their last call, and, once a month, that the 95th
    percentile of people's shares (each the greater of their two) has come to 80 %. With ``dry_run`` it only looks.
    """
    month = Period.of(now).month
    values: dict[str, Any] = {"period": month, "now": now}
    with connection.cursor() as cursor:
        cursor.execute(_PERCENTILE, values)
        percentile, people = cursor.fetchone()
        if dry_run:
            return Checked(0, people, percentile, 0)
        cursor.execute(_NOTICE_ALL, values)
        noticed = cursor.rowcount
    if percentile is not None and percentile >= SHARE_PERCENT:
        _note_percentile(month, percent=int(percentile), people=people, now=now)
    return Checked(noticed, people, percentile, tell(now=now))


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
