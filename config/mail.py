"""Mail is queued with the transaction that has something to tell, and sent by the worker."""

from django.conf import settings
from django.core.mail import EmailMultiAlternatives

from config.queue import BACKOFF, task


def queue_for_operators(*, subject: str, text: str, path: str) -> None:
    """A mail to every operator address, ending in a link into the admin."""
    body = f"{text}\n\n{settings.BASE_URL}{path}\n"
    send_mail.defer(to=settings.OPERATOR_EMAILS, subject=subject, text=body)


@task(name="mail.send", queue="mail", retry=BACKOFF)
def send_mail(to: list[str], subject: str, text: str, html: str = "") -> None:
    """Sends one mail. After a crash between sending and noting it, it is sent again: one too many beats none."""
    message = EmailMultiAlternatives(subject=subject, body=text, to=to)
    if html:
        message.attach_alternative(html, "text/html")
    message.send()
