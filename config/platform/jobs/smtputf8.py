"""Sends mail to local parts beyond ASCII, which only servers with SMTPUTF8 accept (RFC 6531).

Django encodes such an address as a header's encoded word, which names another mailbox; the standard library does not.
"""

import smtplib
from email.headerregistry import Address
from email.message import EmailMessage, Message
from email.policy import SMTPUTF8
from email.utils import formatdate, parseaddr

from django.core.mail import EmailMultiAlternatives
from django.core.mail.backends.smtp import EmailBackend


class NotOffered(smtplib.SMTPException):
    """The mail server does not offer SMTPUTF8, so it cannot address this mailbox."""


class Utf8Mail(EmailMultiAlternatives):
    """A mail whose addresses are not encoded."""

    def message(self) -> Message:  # type: ignore[override]  # every backend asks it for its bytes alone
        made = EmailMessage(policy=SMTPUTF8)
        made["Subject"] = self.subject
        made["From"] = _mailbox(self.from_email)
        made["To"] = [_mailbox(each) for each in self.to]
        made["Date"] = formatdate()
        for name, value in self.extra_headers.items():
            made[name] = value
        made.set_content(str(self.body))
        for content, kind in self.alternatives:
            made.add_alternative(str(content), subtype=kind.partition("/")[2])
        return made


def mail_class(*mailboxes: str) -> type[EmailMultiAlternatives]:
    """Returns the class for a mail with these addresses."""
    # A domain always has an ASCII form.
    is_ascii = all(parseaddr(each)[1].rpartition("@")[0].isascii() for each in mailboxes)
    return EmailMultiAlternatives if is_ascii else Utf8Mail


def hand_over(mail: EmailMultiAlternatives) -> None:
    """Sends a mail by its connection. Raises ``NotOffered`` before any address is sent to the server."""
    backend = mail.connection
    if not (isinstance(mail, Utf8Mail) and isinstance(backend, EmailBackend)):
        mail.send()
        return
    backend.open()
    server = backend.connection
    assert isinstance(server, smtplib.SMTP)
    server.ehlo_or_helo_if_needed()
    if not server.has_extn("SMTPUTF8"):
        raise NotOffered
    sender, *receivers = (parseaddr(each)[1] for each in (mail.from_email, *mail.to))
    server.send_message(mail.message(), sender, receivers)


def _mailbox(written: str) -> Address:
    name, address = parseaddr(written)
    local, _, domain = address.rpartition("@")
    return Address(name, local, domain)
