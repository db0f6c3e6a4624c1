"""What the worker does for access."""

from uuid import UUID

from django.utils import timezone
from procrastinate import JobContext

from accounts.audit import Actor
from accounts.connections import authorisation, disconnecting, reencrypting
from accounts.keys import signing_keys
from accounts.models import PasswordLink
from accounts.people import password_links
from accounts.sessions.retries import wipe_expired
from config.jobs.queue import BACKOFF, RESETS, UNHURRIED, periodic, task


@periodic(cron="7 * * * *")
@task(name="accounts.wipe_retries", queue="accounts", queueing_lock="accounts.wipe_retries")
def wipe_retries(timestamp: int) -> None:
    """Every hour: successors kept for a keyed retry are forgotten a day after they were made."""
    wipe_expired(now=timezone.now())


@task(
    name="accounts.send_reset", queue=RESETS, priority=UNHURRIED, retry=BACKOFF, pass_context=True
)
def send_reset(
    context: JobContext, email: str, address: str | None = None, request_id: str = ""
) -> None:
    """Somebody has asked for a reset; whether there is such a person is found out here and not in the request."""
    password_links.send_reset(
        email=email,
        address=address,
        request_id=request_id,
        again=context.job.attempts > 0,
        now=timezone.now(),
    )


@task(name="accounts.send_password_link", queue="mail", retry=BACKOFF)
def send_password_link(user_id: str, kind: str) -> None:
    """An operator has asked for it. Done twice, a person gets two mails, of which the later one counts."""
    password_links.send_link(
        user_id=UUID(user_id), kind=PasswordLink.Kind(kind), now=timezone.now()
    )


@task(name="accounts.revoke_connection", queue="connections", retry=BACKOFF)
def revoke_connection(revocation_id: int) -> None:
    """A connection was ended here; its provider is told. A failure queues the next try by itself."""
    disconnecting.revoke(revocation_id=revocation_id, now=timezone.now())


@periodic(cron="37 * * * *")
@task(name="accounts.tidy_connections", queue="accounts", queueing_lock="accounts.tidy_connections")
def tidy_connections(timestamp: int) -> None:
    """Every hour: authorisations that nobody ended are forgotten, and lost tries of revocations queued again."""
    now = timezone.now()
    authorisation.forget_expired(now=now)
    disconnecting.queue_overdue(now=now)


@periodic(cron="47 2 * * *")
@task(
    name="accounts.reencrypt_connections",
    queue="accounts",
    queueing_lock="accounts.reencrypt_connections",
)
def reencrypt_connections(timestamp: int) -> None:
    """Every night: what is kept of connections goes under the newest of ``ENCRYPTION_KEYS``."""
    reencrypting.reencrypt()


@periodic(cron="52 2 * * *")
@task(
    name="accounts.reencrypt_signing_keys",
    queue="accounts",
    queueing_lock="accounts.reencrypt_signing_keys",
)
def reencrypt_signing_keys(timestamp: int) -> None:
    """Every night: the private signing keys go under the newest of ``ENCRYPTION_KEYS``."""
    by = Actor(name="the worker, every night")
    signing_keys.reencrypt_signing_keys(by=by, now=timezone.now())
