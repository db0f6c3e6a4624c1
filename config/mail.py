"""Mail is queued with the transaction that has something to tell, and sent by the worker."""

from django.conf import settings
from django.core.mail import EmailMultiAlternatives

from config.database import release_connection
from config.queue import BACKOFF, task


def queue_for_operators(*, subject: str, text: str, path: str) -> None:
    """A mail to every operator address, ending in a link into the admin."""
    body = f"{text}\n\n{settings.BASE_URL}{path}\n"
    send_mail.defer(to=settings.OPERATOR_EMAILS, subject=subject, text=body)


def queue_for_person(*, to: str, subject: str, text: str, html: str) -> None:
    """A mail to somebody, without anything secret in it: what is queued can be read by who reads the queue."""
    send_mail.defer(to=[to], subject=subject, text=text, html=html)


@task(name="mail.send", queue="mail", retry=BACKOFF)
def send_mail(to: list[str], subject: str, text: str, html: str = "") -> None:
    """Sends one mail. After a crash between sending and noting it, it is sent again: one too many beats none."""
    deliver(to=to, subject=subject, text=text, html=html)


def deliver(*, to: list[str], subject: str, text: str, html: str = "") -> None:
    """Hands one mail to the mail server and waits for it; for the worker, never for a request."""
    release_connection()
    message = EmailMultiAlternatives(subject=subject, body=text, to=to)
    if html:
        message.attach_alternative(html, "text/html")
    message.send()
