"""Sums of the database and the mail server, against the answers to callers: nothing lost, nothing doubled."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.db.models import F, Q, Sum
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.models import AuditEvent, RefreshToken
from releases.models import ShellRelease
from telemetry.models import Event
from tests.faults.stage import Stage
from tests.faults.traffic import Traffic
from tests.served.ledger import counters, sums
from usage.models import MonthlyUsage, UsageRecord

OVER = ("succeeded", "failed", "cancelled", "aborted")


@dataclass(frozen=True, kw_only=True)
class Sums:
    """The sums of the whole service at one moment."""

    tokens: int
    records: int
    open_records: int
    events: int
    audit: int
    mails: int
    open_jobs: int
    failed_jobs: int


def sums_of(stage: Stage) -> Sums:
    settled = ~Q(state=UsageRecord.State.OPEN)
    with stage.database.rows():
        spent = UsageRecord.objects.filter(settled).aggregate(
            tokens=Sum(F("input_tokens") + F("output_tokens"), default=0)
        )
        return Sums(
            tokens=spent["tokens"],
            records=UsageRecord.objects.count(),
            open_records=UsageRecord.objects.exclude(settled).count(),
            events=Event.objects.count(),
            audit=AuditEvent.objects.count(),
            mails=len(stage.mail.mails),
            open_jobs=_open_jobs(stage),
            failed_jobs=ProcrastinateJob.objects.filter(status="failed").count(),
        )


def _open_jobs(stage: Stage) -> int:
    """Queued for now, being done, or waiting to be tried again."""
    later = Q(status="todo", attempts=0, scheduled_at__gt=datetime.now(UTC))
    return ProcrastinateJob.objects.exclude(status__in=OVER).exclude(later).count()


def is_quiet(stage: Stage) -> bool:
    """Returns whether no call is open and no job is to be done."""
    now = sums_of(stage)
    return not now.open_records and not now.open_jobs


def hurry(stage: Stage) -> None:
    """As if minutes had gone by: reservations of the dead expire, retries are due, dead workers are known to be."""
    now = datetime.now(UTC)
    with stage.database.rows():
        UsageRecord.objects.filter(state=UsageRecord.State.OPEN).update(expires_at=now)
        ProcrastinateJob.objects.filter(status="todo", scheduled_at__gt=now).update(
            scheduled_at=now
        )


def faults_of(stage: Stage, traffic: Traffic) -> Iterator[str]:
    """A sentence for each sum that is not what callers were told."""
    told = traffic.told
    with stage.database.rows():
        for kind in ("complete", "stream", "messages", "responses"):
            person = traffic.people[kind].id
            answered = told.calls.get(person, [])
            yield from _ledger(kind, person, answered, told.begun[person])
        events = Event.objects.filter(user_id=traffic.people["telemetry"].id)
        held = Counter(str(each) for each in events.values_list("event_id", flat=True))
        if lost := told.kept - held.keys():
            yield f"{len(lost)} acknowledged events are lost"
        if sum(held.values()) != len(held) or held.keys() - told.sent:
            yield "events are there twice, or were never sent"
        login = traffic.people["login"].email
        started = AuditEvent.objects.filter(action="session:started", target=login).count()
        if not told.logins <= started <= told.tried:
            yield f"{told.logins} sign-ins of {told.tried} were answered, and {started} are audited"
        refreshing = traffic.people["refresh"].id
        live = RefreshToken.objects.filter(
            session__user_id=refreshing, revoked_at=None, replaced_by=None
        ).count()
        if live != 1:
            yield f"the session that was refreshed has {live} live tokens"
        versions = set(ShellRelease.objects.values_list("version", flat=True))
        if missing := set(told.versions) - versions:
            yield f"releases are lost: {sorted(missing)}"
    came = Counter(to for mail in list(stage.mail.mails) for to in mail.to)
    if unsent := [each for each in told.mailed if not came[each]]:
        yield f"{len(unsent)} mails did not come"


def ledger_faults(
    stage: Stage, kind: str, person: UUID, answered: Sequence[tuple[int, int]], begun: int
) -> list[str]:
    """Returns the faults of a person's ledger, whose calls are all to be settled."""
    with stage.database.rows():
        open_calls = UsageRecord.objects.filter(user_id=person, state=UsageRecord.State.OPEN)
        faults = [f"{kind}: {number} calls are open"] if (number := open_calls.count()) else []
        return [*faults, *_ledger(kind, person, answered, begun)]


def doubled_mails(stage: Stage, traffic: Traffic) -> int:
    """Mails that came once more: a job runs at least once, so this is to be told and no fault."""
    came = Counter(to for mail in list(stage.mail.mails) for to in mail.to)
    return sum(came[each] - 1 for each in traffic.told.mailed if came[each] > 1)


def _ledger(
    kind: str, person: UUID, answered: Sequence[tuple[int, int]], begun: int
) -> Iterator[str]:
    """Every answer has its record with the same numbers, no call has two, and the totals are their sum."""
    records = UsageRecord.objects.filter(user_id=person)
    charged = Counter(
        (each.input_tokens, each.output_tokens)
        for each in records
        if each.state != UsageRecord.State.OPEN
    )
    if lost := Counter(answered) - charged:
        yield f"{kind}: {lost.total()} answers have no record"
    if len(records) > begun:
        yield f"{kind}: {begun} calls have {len(records)} records"
    if not MonthlyUsage.objects.filter(user_id=person).exists():
        return
    summed, counted = sums(person), counters(person)
    if any(counted[name] != number for name, number in summed.items()):
        yield f"{kind}: the records come to {summed}, the totals say {counted}"
