"""The front page: what matters at a glance, in a handful of short queries by index or over small tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Count, Max
from django.urls import reverse
from procrastinate.contrib.django.models import ProcrastinateJob, ProcrastinateWorker

from accounts.models import AuditEvent, Client, SigningKey
from licensing.models import Licence, Standing
from releases.models import Publication
from usage.models import UsageRecord

EVENTS_SHOWN = 10
GRACES_SHOWN = 5
GRACE_AHEAD = timedelta(days=14)
# The worker sweeps every minute and beats every ten seconds; later than this it is not merely busy.
SWEEP_OVERDUE = timedelta(minutes=3)
BEAT_OVERDUE = timedelta(minutes=1)
QUEUE_OVERDUE = timedelta(minutes=10)
STORE_OVERDUE = timedelta(minutes=5)


class Trouble(NamedTuple):
    """Something an operator should look at: a sentence, and where to look ("" where there is no page)."""

    says: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What the front page shows. ``licences``: status, number and address of its list."""

    licences: list[tuple[str, int, str]]
    in_flight: int
    in_flight_url: str
    troubles: list[Trouble]
    graces: list[Licence]
    events: list[AuditEvent]


def at_a_glance(*, now: datetime) -> Glance:
    """The state of the service as operators want it first."""
    licences = reverse("admin:licensing_licence_changelist")
    number = dict(Licence.objects.order_by().values_list("status").annotate(Count("pk")))
    return Glance(
        licences=[
            (status, number.get(status, 0), f"{licences}?status={status}")
            for status in Standing.values
        ],
        in_flight=UsageRecord.objects.open().filter(expires_at__gt=now).count(),
        in_flight_url=f"{reverse('admin:usage_usagerecord_changelist')}?state__exact=open",
        troubles=list(_troubles(now)),
        graces=list(
            Licence.objects.select_related("client")
            .filter(status=Standing.GRACE, grace_until__lte=now + GRACE_AHEAD)
            .order_by("grace_until")[:GRACES_SHOWN]
        ),
        events=list(AuditEvent.objects.all()[:EVENTS_SHOWN]),
    )


def _troubles(now: datetime) -> Iterator[Trouble]:
    jobs = reverse("admin:procrastinate_procrastinatejob_changelist")
    clients = reverse("admin:accounts_client_changelist")
    beat = ProcrastinateWorker.objects.aggregate(last=Max("last_heartbeat"))["last"]
    if beat is None or beat < now - BEAT_OVERDUE:
        yield Trouble("No worker is running: mail waits, and abandoned calls are not settled.")
    if bare := Client.objects.filter(licence=None).count():
        yield Trouble(f"Clients without a licence, whose people cannot sign in: {bare}.", clients)
    if failed := ProcrastinateJob.objects.filter(status="failed").count():
        yield Trouble(f"Jobs that failed for good: {failed}.", f"{jobs}?status=failed")
    due = ProcrastinateJob.objects.filter(status="todo", scheduled_at__lt=now - QUEUE_OVERDUE)
    if waiting := due.count():
        yield Trouble(f"Jobs that should have begun by now: {waiting}.", f"{jobs}?status=todo")
    if abandoned := UsageRecord.objects.abandoned(at=now - SWEEP_OVERDUE).count():
        records = reverse("admin:usage_usagerecord_changelist")
        yield Trouble(
            f"Calls whose reservation has expired and is still held: {abandoned}.",
            f"{records}?state__exact=open",
        )
    if not any(key.verifies(at=now) and key.signs_from <= now for key in SigningKey.objects.all()):
        yield Trouble(
            "No signing key: nobody can sign in. Run manage.py rotate_signing_key.",
            reverse("admin:accounts_signingkey_changelist"),
        )
    newest = Publication.objects.order_by("release__channel_id", "-pk").distinct(
        "release__channel_id"
    )
    for publication in newest.select_related("release").defer("signature", "release__manifest"):
        if publication.stored_at is None and publication.published_at < now - STORE_OVERDUE:
            channel = reverse(
                "admin:releases_shellchannel_change", args=[publication.release.channel_id]
            )
            yield Trouble(f"{publication.release} was published but is not in storage.", channel)
