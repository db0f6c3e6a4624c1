"""The worker's tasks of this app."""

from datetime import datetime
from uuid import UUID

from django.utils import timezone
from procrastinate import JobContext

from accounts.audit import Actor
from accounts.connections import authorisation, disconnecting, reencrypting
from accounts.keys import signing_keys
from accounts.models import PasswordLink
from accounts.people import email_forms, password_links
from accounts.sessions import refusals
from accounts.sessions.retries import wipe_expired
from config.platform.jobs.queue import BACKOFF, RESETS, UNHURRIED, periodic, task


@periodic(
    "7 * * * *",
    name="accounts.wipe_retries",
    title="Delete answers kept for retries",
    queue="accounts",
)
def wipe_retries(timestamp: int) -> None:
    """Hourly: deletes the sealed successors of retries after a day."""
    wipe_expired(now=timezone.now())


@periodic(
    "* * * * *",
    name="accounts.fill_email_forms",
    title="Fill in the normal forms of emails",
    queue="accounts",
)
def fill_email_forms(timestamp: int) -> None:
    """Every minute: fills in the forms of emails that a process of the release before has written."""
    email_forms.fill_email_forms()


@task(
    name="accounts.send_reset",
    title="Email a requested password reset",
    queue=RESETS,
    priority=UNHURRIED,
    retry=BACKOFF,
    pass_context=True,
)
def send_reset(
    context: JobContext, email: str, address: str | None = None, request_id: str = ""
) -> None:
    """Mails a requested reset if the email has a user, which the request itself does not look up."""
    password_links.send_reset(
        email=email,
        address=address,
        request_id=request_id,
        again=context.job.attempts > 0,
        now=timezone.now(),
    )


@task(
    name="accounts.record_refusal",
    title="Record a refused sign-in",
    queue=RESETS,
    priority=UNHURRIED,
    retry=BACKOFF,
)
def record_refusal(email: str, at: str, address: str | None = None, request_id: str = "") -> None:
    """Audits a refused sign-in if the email has a user, which the request itself does not look up."""
    refusals.record_refusal(
        email=email, address=address, request_id=request_id, at=datetime.fromisoformat(at)
    )


@task(
    name="accounts.send_password_link", title="Email a password link", queue="mail", retry=BACKOFF
)
def send_password_link(user_id: str, kind: str) -> None:
    """Mails a link on behalf of an operator. If the task runs twice, only the link of the later mail works."""
    password_links.send_link(
        user_id=UUID(user_id), kind=PasswordLink.Kind(kind), now=timezone.now()
    )


@task(
    name="accounts.revoke_connection",
    title="Revoke a connection at its provider",
    queue="connections",
    retry=BACKOFF,
)
def revoke_connection(revocation_id: int) -> None:
    """Revokes an ended connection at its provider. A failure queues the next try."""
    disconnecting.revoke(revocation_id=revocation_id, now=timezone.now())


@periodic(
    "37 * * * *",
    name="accounts.tidy_connections",
    title="Delete expired authorisations",
    queue="accounts",
)
def tidy_connections(timestamp: int) -> None:
    """Hourly: deletes expired authorisations and queues overdue revocations again."""
    now = timezone.now()
    authorisation.forget_expired(now=now)
    disconnecting.queue_overdue(now=now)


@periodic(
    "47 2 * * *",
    name="accounts.reencrypt_connections",
    title="Encrypt connections under the newest key",
    queue="accounts",
)
def reencrypt_connections(timestamp: int) -> None:
    """Nightly: re-encrypts the tokens of connections under the newest of ``ENCRYPTION_KEYS``."""
    reencrypting.reencrypt()


@periodic(
    "52 2 * * *",
    name="accounts.reencrypt_signing_keys",
    title="Encrypt signing keys under the newest key",
    queue="accounts",
)
def reencrypt_signing_keys(timestamp: int) -> None:
    """Nightly: re-encrypts the private signing keys under the newest of ``ENCRYPTION_KEYS``."""
    by = Actor(name="the worker, every night")
    signing_keys.reencrypt_signing_keys(by=by, now=timezone.now())
