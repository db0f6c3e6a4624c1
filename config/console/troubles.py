"""What an operator should look at: each kind is one short question by index or over a small table."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Max
from django.urls import reverse
from procrastinate.contrib.django.models import ProcrastinateWorker

from accounts.models import Client, ConnectionRevocation, SigningKey, User
from config.console import queued
from config.management import nightly
from licensing.models import Brake
from llmproxy.catalogue import default_is_off
from releases.delivery.cdn import is_purged
from releases.models import Publication, Purge, ShellChannel
from usage.models import UsageRecord

# The worker sweeps every minute and beats every ten seconds; later than this it is not merely busy.
SWEEP_OVERDUE = timedelta(minutes=3)
BEAT_OVERDUE = timedelta(minutes=1)
QUEUE_OVERDUE = timedelta(minutes=10)
STORE_OVERDUE = timedelta(minutes=5)


class Trouble(NamedTuple):
    """A sentence, and where to look ("" where there is no page)."""

    says: str
    url: str = ""


def troubles_at(now: datetime, *, operator: User) -> Iterator[Trouble]:
    """All there is and that they may see, the most urgent first."""
    for permission, look in LOOKS:
        if operator.has_perm(permission):
            yield from look(now)


def _worker(now: datetime) -> Iterator[Trouble]:
    beat = ProcrastinateWorker.objects.aggregate(last=Max("last_heartbeat"))["last"]
    if beat is None or beat < now - BEAT_OVERDUE:
        yield Trouble("No worker is running: mail waits, and abandoned calls are not settled.")


def _signing_key(now: datetime) -> Iterator[Trouble]:
    if not any(key.verifies(at=now) and key.signs_from <= now for key in SigningKey.objects.all()):
        yield Trouble(
            "No signing key: nobody can sign in. Run manage.py rotate_signing_key.",
            reverse("admin:accounts_signingkey_changelist"),
        )


def _clients(now: datetime) -> Iterator[Trouble]:
    if bare := Client.objects.filter(licence=None).count():
        yield Trouble(
            f"Clients without a licence, whose people cannot sign in: {bare}.",
            reverse("admin:accounts_client_changelist"),
        )


def _brakes(now: datetime) -> Iterator[Trouble]:
    for held in Brake.objects.filter(ended_at=None, confirmed_at=None):
        yield Trouble(
            f"{held.job} waits for you: it would suspend {len(held.licence_ids)} of {held.clients} clients.",
            reverse("admin:licensing_brake_change", args=[held.pk]),
        )


def _queue(now: datetime) -> Iterator[Trouble]:
    jobs = reverse("admin:procrastinate_procrastinatejob_changelist")
    if failed := queued.failed():
        yield Trouble(f"Jobs that failed for good: {failed}.", f"{jobs}?status=failed")
    if waiting := queued.waiting(since=now - QUEUE_OVERDUE):
        yield Trouble(f"Jobs that should have begun by now: {waiting}.", f"{jobs}?status=todo")


def _nights(now: datetime) -> Iterator[Trouble]:
    if missed := [run.job for run in nightly.missed(now=now)]:
        log = reverse("admin:accounts_auditevent_changelist")
        yield Trouble(
            f"Jobs of the night that have not ended well for more than a night: {', '.join(missed)}.",
            f"{log}?subject=nightly",
        )


def _calls(now: datetime) -> Iterator[Trouble]:
    if abandoned := UsageRecord.objects.abandoned(at=now - SWEEP_OVERDUE).count():
        yield Trouble(
            f"Calls whose reservation has expired and is still held: {abandoned}.",
            reverse("admin:usage_runningcall_changelist"),
        )


def _models(now: datetime) -> Iterator[Trouble]:
    if default_is_off():
        yield Trouble(
            "The default model is off: calls that name no model are refused.",
            reverse("admin:llmproxy_languagemodel_changelist"),
        )


def _releases(now: datetime) -> Iterator[Trouble]:
    newest = Publication.objects.order_by("release__channel_id", "-pk").distinct(
        "release__channel_id"
    )
    for publication in newest.select_related("release").defer("signature", "release__manifest"):
        if publication.stored_at is None and publication.published_at < now - STORE_OVERDUE:
            channel = _channel(publication.release.channel_id)
            yield Trouble(f"{publication.release} was published but is not in storage.", channel)
    for row in ShellChannel.objects.filter(unplaced_since__lt=now - STORE_OVERDUE):
        yield Trouble(f"What {row} has to offer has not reached storage.", _channel(row.pk))
    yield from _purges()


def _purges() -> Iterator[Trouble]:
    if not is_purged():
        return
    for purge in Purge.objects.newest():
        if purge.failed:
            yield Trouble(
                f"The CDN does not serve what {purge.channel_id} offers ({purge.failure}).",
                _channel(purge.channel_id),
            )


def _channel(name: str) -> str:
    return reverse("admin:releases_shellchannel_change", args=[name])


def _connections(now: datetime) -> Iterator[Trouble]:
    if given_up := ConnectionRevocation.objects.filter(gave_up_at__isnull=False).count():
        yield Trouble(
            f"Connections that could not be revoked at their provider: {given_up}.",
            f"{reverse('admin:accounts_connectionrevocation_changelist')}?state=given_up",
        )


# With the permission to view what each looks at.
LOOKS: tuple[tuple[str, Callable[[datetime], Iterator[Trouble]]], ...] = (
    ("procrastinate.view_procrastinatejob", _worker),
    ("accounts.view_signingkey", _signing_key),
    ("accounts.view_client", _clients),
    ("licensing.view_brake", _brakes),
    ("procrastinate.view_procrastinatejob", _queue),
    ("accounts.view_auditevent", _nights),
    ("usage.view_runningcall", _calls),
    ("llmproxy.view_languagemodel", _models),
    ("releases.view_shellchannel", _releases),
    ("accounts.view_connectionrevocation", _connections),
)
