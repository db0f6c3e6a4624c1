"""Queues mail in the transaction of its cause; the worker sends it."""

import logging
import smtplib
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from email.utils import parseaddr
from urllib.parse import urlsplit
from uuid import uuid4

from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection

from config.platform.concurrency.greenlets import spawn
from config.platform.db.connections import release_connection
from config.platform.jobs.letters import Letter, letter
from config.platform.jobs.queue import BACKOFF, FailedForGood, task
from config.platform.jobs.smtputf8 import NotOffered, hand_over, mail_class
from config.platform.text.forms import mail_address

# Limit for one mail and its whole connection. A mail that takes longer is retried later.
MOST_SECONDS = 120.0

log = logging.getLogger(__name__)


class Refused(FailedForGood):
    """The mail server refuses this mail permanently; only an operator can queue it again."""


class Unaddressable(Refused):
    """The mail server cannot address a mailbox beyond ASCII; operators need another server or another email."""


OPEN = "Open in the console"
WHY = "You get this email because OPERATOR_EMAILS of this service lists your address."


def queue_for_operators(
    *, subject: str, text: str, path: str, label: str = OPEN, lock: str = ""
) -> None:
    """Queues a mail to every operator address, with a button that opens a page of the console.

    Each address has a separate job, so that a refusal of one neither stops nor repeats the mail to the others. Mails
    of one ``lock`` are sent to an address in the order in which they were queued.
    """
    mail = for_operators(subject=subject, text=text, path=path, label=label)
    for address in settings.OPERATOR_EMAILS:
        _queue(to=[address], lock=f"{lock} {address}" if lock else None, **mail._asdict())


def for_operators(*, subject: str, text: str, path: str, label: str = OPEN) -> Letter:
    """Returns a mail to operators, for ``deliver`` where no worker runs."""
    button = f"[{label}] {settings.BASE_URL}{path}"
    return letter(f"{subject}\n\n{text}\n\n{button}\n\n---\n\n{WHY}")


def queue_for_person(*, to: str, mail: Letter, send_at: datetime | None = None) -> None:
    """Queues a mail to a person. It must contain no secret: the queue stores it in plain text."""
    _queue(send_at, to=[to], **mail._asdict())


def _queue(send_at: datetime | None = None, *, lock: str | None = None, **what: object) -> None:
    job = send_mail.configure(schedule_at=send_at, lock=lock)
    job.defer(**what, message_id=new_message_id())


@task(name="mail.send", title="Send an email", queue="mail", retry=BACKOFF)
def send_mail(to: list[str], subject: str, text: str, html: str = "", message_id: str = "") -> None:
    """Sends one mail at least once: a crash before the job ends sends it again.

    Both copies have the same ``Message-ID``, by which mail servers and programs recognise a duplicate.
    """
    deliver(to=to, subject=subject, text=text, html=html, message_id=message_id)


def deliver(
    *, to: list[str], subject: str, text: str, html: str = "", message_id: str = ""
) -> None:
    """Sends one mail and waits for the mail server; for the worker, never for a request.

    The recipient is the normal form by which emails are compared: Django encodes a ``ß`` as another domain.

    Raises:
        Refused: the server refuses the recipient or the mail permanently; ``Unaddressable`` if it lacks SMTPUTF8.
        OSError, smtplib.SMTPException: a temporary failure; the caller retries.
    """
    release_connection()
    headers = {"Message-ID": message_id or new_message_id(), "Auto-Submitted": "auto-generated"}
    sender, receivers = _encoded(settings.DEFAULT_FROM_EMAIL), [_encoded(each) for each in to]
    mail = mail_class(sender, *receivers)
    message = mail(subject, text, sender, receivers, headers=headers)
    if html:
        message.attach_alternative(html, "text/html")
    try:
        _send_in_time(message)
    except NotOffered:
        log.warning("mail_refused", extra={"code": "smtputf8_not_offered"})
        raise Unaddressable("The mail server offers no SMTPUTF8 (RFC 6531).") from None
    except smtplib.SMTPException as error:
        code = _refusal(error)
        if code is None:
            raise
        log.warning("mail_refused", extra={"code": str(code)})
        # The cause is dropped, because it contains the address.
        raise Refused(f"The mail server refuses it permanently ({code}).") from None


def _encoded(mailbox: str) -> str:
    """Returns an address, with an optional name before it, in the encoding of mail servers."""
    address = parseaddr(mailbox)[1]
    before, found, after = mailbox.rpartition(address or "@")
    return before + mail_address(address) + after if found and address else mailbox


def new_message_id() -> str:
    """Returns a unique id under the domain of the service, not the name of its host."""
    return f"<{uuid4()}@{urlsplit(settings.BASE_URL).hostname}>"


def _send_in_time(message: EmailMultiAlternatives) -> None:
    """Sends a mail in a separate task; raises ``TimeoutError`` after ``MOST_SECONDS``.

    ``EMAIL_TIMEOUT`` limits each silence of a server, but not a server that trickles bytes.
    """
    sent: Future[None] = Future()
    task = spawn(_send, message, sent)
    try:
        sent.result(MOST_SECONDS)
    finally:
        task.kill()


def _send(message: EmailMultiAlternatives, sent: Future[None]) -> None:
    try:
        message.connection = get_connection()
        try:
            hand_over(message)
        finally:
            # Django closes only a fully opened connection.
            with suppress(OSError):
                message.connection.close()
        sent.set_result(None)
    except Exception as error:  # noqa: BLE001 - raised for the caller
        sent.set_exception(error)


def _refusal(error: smtplib.SMTPException) -> int | None:
    """Returns the server's code if it refuses this mail or its recipients permanently.

    A refused sender or password is a fault of the settings, which an operator can fix while the mail waits.
    """
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _ in error.recipients.values()]
        return codes[0] if all(500 <= code < 600 for code in codes) else None
    if isinstance(error, smtplib.SMTPDataError) and 500 <= error.smtp_code < 600:
        return error.smtp_code
    return None
