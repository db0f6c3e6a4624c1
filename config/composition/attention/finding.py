"""Finds what needs attention and is more than the rows of one query."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet
from procrastinate.contrib.django.models import (
    ProcrastinateJob,
    ProcrastinatePeriodicDefer,
    ProcrastinateWorker,
)

from accounts import forwarding
from accounts.models import AuditEvent, Client, Session, SigningKey
from config.composition.attention.kinds import Found, Level
from config.composition.operation import nightly
from config.console.template_tags import counted
from llmproxy.catalogue.health import MINUTES, health_of
from llmproxy.catalogue.member_names import member_warnings
from llmproxy.catalogue.vendors import fetching_warning
from llmproxy.models import LanguageModel, Provider, Route
from releases.delivery.cdn import is_purged
from releases.models import Publication, Purge, ShellChannel
from telemetry.models import DailyShare
from usage.alerts import near_caps
from usage.budgets import percent_of
from usage.models import Alert, Budget
from usage.periods import Period

# A worker beats every ten seconds and starts due jobs within one.
BEAT_OVERDUE = timedelta(minutes=1)
STILL_AFTER = timedelta(minutes=5)
QUEUE_OVERDUE = timedelta(minutes=10)
SYSLOG_OVERDUE = timedelta(minutes=10)
STORE_OVERDUE = timedelta(minutes=5)
# The tolerated lead of a worker's clock over the database's.
AHEAD = timedelta(minutes=2)
# Failures of the last minutes, no fewer than the answers, that show a provider as failing.
FAILURES = 5


def worker(now: datetime) -> Iterator[Found]:
    beat = ProcrastinateWorker.objects.aggregate(last=Max("last_heartbeat"))["last"]
    tick = last_tick()
    # Beats are in the database's time, ticks in the worker's: a tick in the future proves nothing.
    past = (each for each in (beat, tick) if each and each < now + AHEAD)
    life = max(past, default=None)
    stands_still = life is None or life < now - STILL_AFTER
    if stands_still or beat is None or beat < now - BEAT_OVERDUE:
        yield Found(since=life, is_mailed=stands_still)


def clock(now: datetime) -> Iterator[Found]:
    tick = last_tick()
    if tick and tick >= now + AHEAD:
        yield Found(tick=tick, now=now)


def last_tick() -> datetime | None:
    """The time up to which a worker has queued the periodic jobs.

    A worker that stops cleanly removes its heartbeats and leaves this; another may be about to replace it.
    """
    tick = ProcrastinatePeriodicDefer.objects.aggregate(last=Max("defer_timestamp"))["last"]
    return datetime.fromtimestamp(tick, UTC) if tick else None


def overdue_jobs(now: datetime) -> QuerySet[ProcrastinateJob]:
    since = now - QUEUE_OVERDUE
    # A job that is due at once has no scheduled time.
    due = Q(scheduled_at__lt=since) | Q(scheduled_at=None, procrastinateevent__at__lt=since)
    return ProcrastinateJob.objects.filter(due, status="todo")


def counted_jobs(rows: QuerySet[ProcrastinateJob], now: datetime) -> Iterator[Found]:
    """The number of jobs with the names of their tasks; those of one task can be queued again as a whole."""
    numbers = (Count("pk", distinct=True), Max("pk"), Max("procrastinateevent__at"))
    tasks = rows.order_by("task_name").values_list("task_name").annotate(*numbers)
    names, each, last, ends = zip(*tasks, strict=True)
    since = max(filter(None, ends), default=None)
    job = ProcrastinateJob(pk=last[0], task_name=names[0], status="failed")
    acts = "retry_alike" if len(names) == 1 else ""
    yield Found(number=sum(each), names=names, since=since, job=job, acts=acts)


def nights(now: datetime) -> Iterator[Found]:
    """Jobs that have missed a night, which is mailed, and those that have only failed."""
    runs = nightly.last_runs()
    missed = nightly.missed(now=now, runs=runs)
    for run in missed:
        yield Found(pk=run.job, since=run.done_at, level=Level.ACT)
    for run in runs:
        if run.last and run.has_failed and run not in missed:
            yield Found(pk=run.job, since=run.last.at, failed=run.last, is_mailed=False)


def syslog(now: datetime) -> Iterator[Found]:
    oldest = forwarding.waiting() if settings.AUDIT_SYSLOG_URL else None
    if oldest and oldest.at < now - SYSLOG_OVERDUE:
        yield Found(since=oldest.at, days=settings.AUDIT_RETENTION_DAYS)


def signing_key(now: datetime) -> Iterator[Found]:
    if not any(key.verifies(at=now) and key.signs_from <= now for key in SigningKey.objects.all()):
        yield Found()


def reused(events: QuerySet[AuditEvent], now: datetime) -> list[Session]:
    """The sessions of events of reuse, with when it was; the latest first."""
    at = dict(events.order_by("at").values_list("target_id", "at"))
    rows: Any = Session.objects.filter(pk__in=at).select_related("user")
    for each in rows:
        each.since = at[str(each.pk)]
    return sorted(rows, key=lambda each: each.since, reverse=True)


def full_of_telemetry(now: datetime) -> QuerySet[Client]:
    today = now.astimezone(UTC).date()
    full = DailyShare.objects.filter(day=today, holder_id=F("client_id")).values("client_id")
    return Client.objects.filter(pk__in=full)


def refused_telemetry(clients: QuerySet[Client], now: datetime) -> Iterator[Found]:
    for client in clients:
        # Of each day: operators hear of the next one too.
        day = now.astimezone(UTC).date()
        yield Found(pk=f"{client.pk} {day}", client=client, megabytes=settings.TELEMETRY_DAILY_MB)


def budgets(rows: QuerySet[Budget], now: datetime) -> list[Budget]:
    """The budgets that are spent, and then those of 80 % and more, with when they are at this pace."""
    period = Period.of(now)
    people = Count("client__users", filter=Q(client__users__erased_at=None))
    found: Any = rows.annotate(people=people).order_by("-exceeded_at", "-warned_at")
    for each in found:
        each.percent, each.since = percent_of(each), each.exceeded_at or each.warned_at
        each.whom = counted(each.people, "person", "people")
        each.level = Level.ACT if each.exceeded_at else Level.WATCH
        end = now + (now - period.month_start) * ((each.monthly - each.spent) / each.spent)
        each.ends = end if end < period.next_month else None
    return sorted(found, key=lambda each: each.level)


def unpriced() -> QuerySet[Any]:
    """Routes whose calls count towards no budget, where there is one; those behind another route are spare."""
    used = Route.objects.filter(provider__is_on=True, model__is_on=True)
    before = Exists(used.filter(model=OuterRef("model"), order__lt=OuterRef("order")))
    rows = used.filter(Exists(Budget.objects.all()), input_price=None).annotate(is_spare=before)
    return rows.select_related("model", "provider").order_by("is_spare", "model", "order")


def caps(alerts: QuerySet[Alert], now: datetime) -> Iterator[Found]:
    for near in near_caps(alerts, now):
        level = Level.ACT if near.is_reached else Level.WATCH
        yield Found(pk=near.user.pk, near=near, since=near.since, level=level)


def unusual(alerts: QuerySet[Any], now: datetime) -> Iterator[Any]:
    """People with many abandoned calls, which can be stopped, and reports that the calls do not explain."""
    for each in alerts:
        each.acts = "stop_calls" if each.kind == Alert.Kind.ABANDONED else ""
        yield each


def default_model(now: datetime) -> Iterator[Found]:
    name = settings.LLM_DEFAULT_MODEL
    is_on = LanguageModel.objects.filter(name=name).values_list("is_on", flat=True).first()
    if is_on is False:
        yield Found(name=name, is_off=True, level=Level.ACT)
    elif is_on is None and Budget.objects.exists():
        yield Found(name=name, is_off=False)


def fetching(rows: QuerySet[Provider], now: datetime) -> Iterator[Found]:
    if warning := fetching_warning():
        yield Found(warning=warning)


def members(now: datetime) -> Iterator[Found]:
    for warning in member_warnings():
        yield Found(warning=warning)


def providers(now: datetime) -> Iterator[Found]:
    """Providers that fail, do not answer at all, or are paused."""
    rows = {each.name: each for each in Provider.objects.filter(is_on=True)}
    for name, health in health_of(rows, now=now).items():
        if health.cooling or (health.failed >= FAILURES and health.failed >= health.answered):
            routes = Route.objects.filter(provider=rows[name]).select_related("model", "provider")
            paused = routes.filter(provider_name__in=health.cooling) if health.cooling else routes
            yield Found(
                pk=rows[name].pk,
                provider=rows[name],
                health=health,
                seconds=max((each.seconds for each in health.cooling.values()), default=0),
                asked=any(each.is_asked for each in health.cooling.values()),
                route=paused.first(),
                level=Level.WATCH if health.answered else Level.ACT,
                whom=f"{health.failed:,} failed in {MINUTES} min",
            )


def not_stored(now: datetime) -> Iterator[Publication]:
    newest = Publication.objects.order_by("release__channel_id", "-pk").distinct(
        "release__channel_id"
    )
    for each in newest.select_related("release__channel").defer("signature", "release__manifest"):
        is_late = each.published_at < now - STORE_OVERDUE
        if each.stored_at is None and is_late and not each.is_partial:
            yield each


def channels(rows: QuerySet[ShellChannel], now: datetime) -> Iterator[Any]:
    """Halted channels, and those whose offer has not reached storage in its time."""
    for each in rows:
        if each.halted_at:
            yield Found(pk=each.pk, channel=each, is_halted=True, since=each.halted_at)
        if each.unplaced_since and each.unplaced_since < now - STORE_OVERDUE:
            since = each.unplaced_since
            yield Found(pk=each.pk, channel=each, is_halted=False, since=since, acts="")


def not_purged(now: datetime) -> list[Purge]:
    newest = Purge.objects.newest().select_related("channel") if is_purged() else ()
    return [each for each in newest if each.failed]
