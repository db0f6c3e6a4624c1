"""The conditions that operators should act on, each found by one short query by index or over a small table.

The front page shows them all; ``config.console.watch`` mails those with a subject and a text.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db.models import Count, F, Max, Q
from django.urls import reverse
from procrastinate.contrib.django.models import (
    ProcrastinateJob,
    ProcrastinatePeriodicDefer,
    ProcrastinateWorker,
)

from accounts import forwarding
from accounts.models import Client, ConnectionRevocation, Operator, SigningKey, User
from config.api.problems import instant
from config.management import nightly
from licensing.models import Brake
from llmproxy.catalogue.choosing import default_is_off
from llmproxy.catalogue.unpriced import unpriced_warning
from llmproxy.catalogue.vendors import fetching_warning
from releases.delivery.cdn import is_purged
from releases.models import Publication, Purge, ShellChannel
from telemetry.models import DailyShare
from usage.budgets import standing, warned
from usage.models import Budget, UsageRecord
from usage.periods import Period

# A worker beats every ten seconds, starts due jobs within one, and settles abandoned calls every minute.
BEAT_OVERDUE = timedelta(minutes=1)
STILL_AFTER = timedelta(minutes=5)
QUEUE_OVERDUE = timedelta(minutes=10)
SWEEP_OVERDUE = timedelta(minutes=3)
SYSLOG_OVERDUE = timedelta(minutes=10)
STORE_OVERDUE = timedelta(minutes=5)
# The tolerated lead of a worker's clock over the database's.
AHEAD = timedelta(minutes=2)


class Condition(NamedTuple):
    """One condition: ``says`` on the front page, linked to ``path``; with a ``subject`` it is mailed as well."""

    name: str
    says: str
    path: str = ""
    subject: str = ""
    text: str = ""


def alerts(*, now: datetime, operator: User | None = None) -> Iterator[Condition]:
    """The conditions that hold now and that this operator may see, the most urgent first."""
    for permission, find in CONDITIONS:
        if operator is None or operator.has_perm(permission):
            yield from find(now)


def alerts_by_mail(*, now: datetime) -> Iterator[Condition]:
    """The conditions that are mailed: those of the worker and what it does, and of telemetry that is refused."""
    for find in (_worker, _queue, _nights, _syslog, _telemetry):
        yield from (alert for alert in find(now) if alert.subject)


def _list_of(model: str) -> str:
    return reverse(f"admin:{model}_changelist")


def _worker(now: datetime) -> Iterator[Condition]:
    jobs = _list_of("procrastinate_procrastinatejob")
    beat = ProcrastinateWorker.objects.aggregate(last=Max("last_heartbeat"))["last"]
    tick = _last_tick()
    # Beats are in the database's time, ticks in the worker's: a tick in the future proves nothing.
    past = (each for each in (beat, tick) if each and each < now + AHEAD)
    life = max(past, default=None)
    stands_still = life is None or life < now - STILL_AFTER
    if stands_still or beat is None or beat < now - BEAT_OVERDUE:
        yield Condition(
            "worker",
            "No worker is running: mail waits, and abandoned calls are not settled.",
            jobs,
            "No worker is running" if stands_still else "",
            f"The last sign of life: {instant(life) if life else 'none'}. Until one runs (manage.py work) no mail "
            "is sent, abandoned model calls hold their tokens, and nothing queued is done. Nothing is lost.",
        )
    if tick and tick >= now + AHEAD:
        yield Condition(
            "clock",
            "The clock of a worker is ahead.",
            jobs,
            "The clock of a worker is ahead",
            f"It has run the periodic jobs of {instant(tick)}, and by the database it is {instant(now)}. Correct the "
            "clock of its host. Until that time has come, no periodic job runs again: abandoned calls hold their "
            "tokens, and the jobs of a killed worker wait.",
        )


def _last_tick() -> datetime | None:
    """The time up to which a worker has queued the periodic jobs.

    A worker that stops cleanly removes its heartbeats and leaves this; another may be about to replace it.
    """
    tick = ProcrastinatePeriodicDefer.objects.aggregate(last=Max("defer_timestamp"))["last"]
    return datetime.fromtimestamp(tick, UTC) if tick else None


def _signing_key(now: datetime) -> Iterator[Condition]:
    if not any(key.verifies(at=now) and key.signs_from <= now for key in SigningKey.objects.all()):
        yield Condition(
            "signing key",
            "No signing key: nobody can sign in. Run manage.py rotate_signing_key.",
            _list_of("accounts_signingkey"),
        )


def _clients(now: datetime) -> Iterator[Condition]:
    if bare := Client.objects.filter(licence=None).count():
        says = f"Clients without a licence, whose people cannot sign in: {bare}."
        yield Condition("clients", says, _list_of("accounts_client"))


def _suspensions(now: datetime) -> Iterator[Condition]:
    for held in Brake.objects.filter(ended_at=None, confirmed_at=None):
        yield Condition(
            f"suspensions: {held.job}",
            f"{held.job} waits for you: it would suspend {len(held.licence_ids)} of {held.clients} clients.",
            reverse("admin:licensing_brake_change", args=[held.pk]),
        )


def _queue(now: datetime) -> Iterator[Condition]:
    jobs = _list_of("procrastinate_procrastinatejob")
    since = now - QUEUE_OVERDUE
    # A job that is due at once has no scheduled time.
    due = Q(scheduled_at__lt=since) | Q(scheduled_at=None, procrastinateevent__at__lt=since)
    number = ProcrastinateJob.objects.filter(status__in=("todo", "failed")).aggregate(
        waiting=Count("pk", filter=Q(due, status="todo"), distinct=True),
        failed=Count("pk", filter=Q(status="failed"), distinct=True),
    )
    if waiting := number["waiting"]:
        yield Condition(
            "queue",
            f"Jobs that should have begun by now: {waiting}.",
            f"{jobs}?status=todo",
            "Queued work waits",
            f"Jobs that should have begun more than ten minutes ago: {waiting}. Either no worker runs, or those "
            "that do are busy: start another (manage.py work), or one with a higher --concurrency.",
        )
    if failed := number["failed"]:
        yield Condition(
            "failed jobs",
            f"Jobs that failed for good: {failed}.",
            f"{jobs}?status=failed",
            "Queued work has failed for good",
            f"Jobs that have failed at every try: {failed}. Queue them again in the console once the cause is mended.",
        )


def _nights(now: datetime) -> Iterator[Condition]:
    for run in nightly.missed(now=now):
        ended = f"last succeeded {instant(run.done_at)}" if run.done_at else "has never succeeded"
        yield Condition(
            f"night: {run.job}",
            f"A nightly job has not succeeded for more than a night: {run.job}.",
            f"{_list_of('accounts_auditevent')}?subject=nightly",
            f"A night was missed: {run.job}",
            f"The job {run.job} {ended}. Check that a worker runs (manage.py work), which begins the night at "
            "NIGHTLY_AT, or without that variable that your schedule calls manage.py nightly; to run the job now, "
            f"run manage.py {run.job}.",
        )


def _syslog(now: datetime) -> Iterator[Condition]:
    oldest = forwarding.waiting() if settings.AUDIT_SYSLOG_URL else None
    if oldest and oldest.at < now - SYSLOG_OVERDUE:
        yield Condition(
            "syslog",
            f"The syslog server has taken no audit event since {instant(oldest.at)}.",
            _list_of("accounts_auditevent"),
            "Audit events wait for the syslog server",
            f"The oldest event that it has not taken is of {instant(oldest.at)}. The worker tries on, and events wait "
            f"in the database; those older than {settings.AUDIT_RETENTION_DAYS} days are pruned.",
        )


def _budgets(now: datetime) -> Iterator[Condition]:
    for budget in warned(month=Period.of(now).month):
        page = reverse("admin:accounts_client_change", args=[budget.client_id])
        yield Condition(f"budget: {budget.client_id}", standing(budget), page)
    if Budget.objects.exists() and (warning := unpriced_warning()):
        yield Condition("unpriced models", warning, _list_of("llmproxy_route"))


def _calls(now: datetime) -> Iterator[Condition]:
    if abandoned := UsageRecord.objects.abandoned(at=now - SWEEP_OVERDUE).count():
        says = f"Calls whose reservation has expired and is still held: {abandoned}."
        yield Condition("calls", says, _list_of("usage_runningcall"))


def _operators(now: datetime) -> Iterator[Condition]:
    if wrong := Operator.objects.filter(client__isnull=False).count():
        says = f"Operators who belong to a client, as nobody new can: {wrong}."
        yield Condition("operators", says, f"{_list_of('accounts_operator')}?client=some")


def _models(now: datetime) -> Iterator[Condition]:
    if default_is_off():
        says = "The default model is off: calls that name no model are refused."
        yield Condition("default model", says, _list_of("llmproxy_languagemodel"))


def _providers(now: datetime) -> Iterator[Condition]:
    if warning := fetching_warning():
        yield Condition("fetching providers", warning, _list_of("llmproxy_provider"))


def _releases(now: datetime) -> Iterator[Condition]:
    newest = Publication.objects.order_by("release__channel_id", "-pk").distinct(
        "release__channel_id"
    )
    for publication in newest.select_related("release").defer("signature", "release__manifest"):
        if publication.stored_at is None and publication.published_at < now - STORE_OVERDUE:
            says = f"{publication.release} was published but is not in storage."
            yield _of_channel("not stored", publication.release.channel_id, says)
    for row in ShellChannel.objects.filter(unplaced_since__lt=now - STORE_OVERDUE):
        yield _of_channel("not placed", row.pk, f"The offer of {row} has not reached storage.")
    for purge in Purge.objects.newest() if is_purged() else ():
        if purge.failed:
            says = f"The CDN does not serve what {purge.channel_id} offers ({purge.failure})."
            yield _of_channel("not purged", purge.channel_id, says)


def _of_channel(name: str, channel: str, says: str) -> Condition:
    page = reverse("admin:releases_shellchannel_change", args=[channel])
    return Condition(f"{name}: {channel}", says, page)


def _connections(now: datetime) -> Iterator[Condition]:
    if lost := ConnectionRevocation.objects.filter(gave_up_at__isnull=False).count():
        says = f"Connections that could not be revoked at their provider: {lost}."
        page = f"{_list_of('accounts_connectionrevocation')}?state=given_up"
        yield Condition("connections", says, page)


def _telemetry(now: datetime) -> Iterator[Condition]:
    today = now.astimezone(UTC).date()
    full = DailyShare.objects.filter(day=today, holder_id=F("client_id")).values("client_id")
    for client in Client.objects.filter(pk__in=full).order_by("name"):
        yield Condition(
            # Of each day: operators hear of the next one too.
            f"telemetry: {client.pk} {today}",
            f"Telemetry of {client} is refused until midnight UTC: its day, or a person's share of it, is full.",
            reverse("admin:accounts_client_change", args=[client.pk]),
            f"Telemetry of {client} is full today",
            "This client, or one of its people, has stored what TELEMETRY_DAILY_MB allows in a day "
            f"({settings.TELEMETRY_DAILY_MB} MiB, a person a quarter). Batches are refused until midnight UTC.",
        )


# Each with the permission that shows it to an operator.
CONDITIONS: tuple[tuple[str, Callable[[datetime], Iterator[Condition]]], ...] = (
    ("procrastinate.view_procrastinatejob", _worker),
    ("accounts.view_signingkey", _signing_key),
    ("accounts.view_client", _clients),
    ("accounts.view_operator", _operators),
    ("licensing.view_brake", _suspensions),
    ("procrastinate.view_procrastinatejob", _queue),
    ("accounts.view_auditevent", _nights),
    ("accounts.view_auditevent", _syslog),
    ("usage.view_runningcall", _calls),
    ("usage.view_budget", _budgets),
    ("llmproxy.view_languagemodel", _models),
    ("llmproxy.view_provider", _providers),
    ("releases.view_shellchannel", _releases),
    ("telemetry.view_event", _telemetry),
    ("accounts.view_connectionrevocation", _connections),
)
