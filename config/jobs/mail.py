"""Mail is queued with the transaction that has something to tell, and sent by the worker."""

import logging
import smtplib
from concurrent.futures import Future
from contextlib import suppress
from urllib.parse import urlsplit
from uuid import uuid4

from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection

from config.db.connections import release_connection
from config.greenlets import spawn
from config.jobs.queue import BACKOFF, FailedForGood, task

# For one mail, from the connection to the farewell. Where that is not enough, it is tried again later.
MOST_SECONDS = 120.0

log = logging.getLogger(__name__)


class Refused(FailedForGood):
    """The mail server will not take this mail for this recipient, now or later. It is queued again by hand or never."""


def queue_for_operators(*, subject: str, text: str, path: str) -> None:
    """A mail to every operator address, ending in a link into the admin.

    Each has a job of its own, so that one that is refused keeps no mail from the others and repeats none to them.
    """
    body = f"{text}\n\n{settings.BASE_URL}{path}\n"
    for address in settings.OPERATOR_EMAILS:
        _queue(to=[address], subject=subject, text=body)


def queue_for_person(*, to: str, subject: str, text: str, html: str) -> None:
    """A mail to somebody, without anything secret in it: what is queued can be read by who reads the queue."""
    _queue(to=[to], subject=subject, text=text, html=html)


def _queue(**what: object) -> None:
    send_mail.defer(**what, message_id=new_message_id())


@task(name="mail.send", queue="mail", retry=BACKOFF)
def send_mail(to: list[str], subject: str, text: str, html: str = "", message_id: str = "") -> None:
    """Sends one mail. After a crash between sending and noting it, it is sent again: one too many beats none.

    It then has the same ``Message-ID``, by which mail servers and programs know a mail that they have already.
    """
    deliver(to=to, subject=subject, text=text, html=html, message_id=message_id)


def deliver(
    *, to: list[str], subject: str, text: str, html: str = "", message_id: str = ""
) -> None:
    """Hands one mail to the mail server and waits for it; for the worker, never for a request.

    Raises:
        Refused: no recipient is taken, or not this mail, and the server says that this will not change.
        OSError, smtplib.SMTPException: not now; whoever calls tries again.
    """
    release_connection()
    headers = {"Message-ID": message_id or new_message_id(), "Auto-Submitted": "auto-generated"}
    message = EmailMultiAlternatives(subject, text, to=to, headers=headers)
    if html:
        message.attach_alternative(html, "text/html")
    try:
        _send_in_time(message)
    except smtplib.SMTPException as error:
        code = _refusal(error)
        if code is None:
            raise
        log.warning("mail_refused", extra={"code": str(code)})
        # Without the error itself, which holds the address.
        raise Refused from None


def new_message_id() -> str:
    """An id that no other mail has, under the name of the service and not of its host."""
    return f"<{uuid4()}@{urlsplit(settings.BASE_URL).hostname}>"


def _send_in_time(message: EmailMultiAlternatives) -> None:
    """Sends a mail in a task of its own, which is left with ``TimeoutError`` when its time is over.

    ``EMAIL_TIMEOUT`` bounds each silence of a server, and not one that always sends a little more.
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
            message.send()
        finally:
            # Django closes one only if it could be opened to the end.
            with suppress(OSError):
                message.connection.close()
        sent.set_result(None)
    except Exception as error:  # noqa: BLE001 - raised for the caller
        sent.set_exception(error)


def _refusal(error: smtplib.SMTPException) -> int | None:
    """The server's code where it speaks of this mail or its recipients and is final.

    A sender or a password that is refused is the service's own fault, which an operator mends while mail waits.
    """
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _ in error.recipients.values()]
        return codes[0] if all(500 <= code < 600 for code in codes) else None
    if isinstance(error, smtplib.SMTPDataError) and 500 <= error.smtp_code < 600:
        return error.smtp_code
    return None
