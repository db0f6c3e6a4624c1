"""Mail to and from addresses whose local part is beyond ASCII, with a server that knows them and one that does not.

Rows with a number are public reports of other projects.
"""

import logging
import smtplib
from collections.abc import Iterator
from email import message_from_bytes, message_from_string, policy
from pathlib import Path
from typing import Any

import pytest
from procrastinate.jobs import Job

from config.platform.jobs.mail import Refused, Unaddressable, deliver
from config.platform.jobs.queue import BACKOFF
from tests.platform.jobs.test_mail import HOST
from tests.standins.mail_server import MailServer

pytestmark = pytest.mark.django_db
MAILBOXES = [
    # python/cpython#122476: an encoded word in an address is another mailbox.
    ("j\u00f6rg@example.com", "j\u00f6rg@example.com"),
    ("f\u00f6\u00f6@b\u00e4r.com", "f\u00f6\u00f6@xn--br-via.com"),  # pallets-eco/flask-mail#28
    ("moli\u00e8re@example.com", "moli\u00e8re@example.com"),  # matrix-org/sydent#458
    ("jo\u0308rg@example.com", "j\u00f6rg@example.com"),
    ("\u7528\u6237@\u4f8b\u3048.jp", "\u7528\u6237@xn--r8jz45g.jp"),
    ("J\u00f6rg M\u00fcller <j\u00f6rg@example.com>", "j\u00f6rg@example.com"),
]


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    server = MailServer(utf8=True)
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = HOST, server.port
    yield server
    server.close()


def send(to: str = "ada@acme.test") -> None:
    deliver(
        to=[to],
        subject="Gr\u00fc\u00dfe",
        text="H\u00e4llo",
        html="<p>H\u00e4llo</p>",
        message_id="<1@a.test>",
    )


def mail_of(server: MailServer) -> Any:
    (mail,) = server.mails
    return message_from_bytes(mail.message.as_bytes(), policy=policy.SMTPUTF8)


def mailboxes(server: MailServer, header: str) -> list[str]:
    """The mailboxes in a header, which is read as UTF-8: the library reads bytes as ASCII."""
    text = server.mails[-1].message.as_bytes().decode()
    message = message_from_string(text, policy=policy.SMTPUTF8)
    return [each.addr_spec for each in message[header].addresses]


@pytest.mark.parametrize(("written", "mailbox"), MAILBOXES)
def test_a_server_that_knows_them_gets_the_very_mailbox(
    server: MailServer, written: str, mailbox: str
) -> None:
    send(written)
    assert [mail.to for mail in server.mails] == [[mailbox]]
    assert {"SMTPUTF8", "BODY=8BITMIME"} <= set(server.mails[0].said.split())
    message = mail_of(server)
    assert mailboxes(server, "To") == [mailbox]
    assert (message["Subject"], message["Message-ID"]) == ("Gr\u00fc\u00dfe", "<1@a.test>")
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Date"].datetime is not None
    texts = {part.get_content_type(): part.get_content() for part in message.iter_parts()}
    assert {kind: text.strip() for kind, text in texts.items()} == {
        "text/plain": "H\u00e4llo",
        "text/html": "<p>H\u00e4llo</p>",
    }


@pytest.mark.parametrize(("written", "mailbox"), MAILBOXES)
def test_a_server_that_does_not_is_told_nothing_and_operators_are(
    server: MailServer, caplog: pytest.LogCaptureFixture, written: str, mailbox: str
) -> None:
    server.utf8 = False
    with caplog.at_level(logging.WARNING), pytest.raises(Unaddressable) as raised:
        send(written)
    assert server.mails == []
    assert [(each.message, vars(each)["code"]) for each in caplog.records] == [
        ("mail_refused", "smtputf8_not_offered")
    ]
    assert mailbox.partition("@")[0] not in repr(raised.value)
    job = Job(id=1, queue="mail", lock=None, queueing_lock=None, task_name="mail.send", attempts=0)
    assert BACKOFF.get_retry_decision(exception=raised.value, job=job) is None


@pytest.mark.parametrize(("written", "mailbox"), MAILBOXES)
def test_a_sender_beyond_ascii_is_one_too(
    server: MailServer, settings: Any, written: str, mailbox: str
) -> None:
    settings.DEFAULT_FROM_EMAIL = written
    send()
    assert mailboxes(server, "From") == [mailbox]
    server.utf8 = False
    with pytest.raises(Unaddressable):
        send()
    assert len(server.mails) == 1


def test_every_other_mail_asks_for_nothing(server: MailServer, settings: Any) -> None:
    """The name before an address, subject and text are encoded, as ever."""
    settings.DEFAULT_FROM_EMAIL = "Gr\u00f6\u00dfe <shell@m\u00fcller.example>"
    send("J\u00f6rg <joerg@m\u00fcller.example>")
    assert "SMTPUTF8" not in server.mails[0].said
    (mail,) = server.mails
    assert all(str(value).isascii() for value in mail.message.values())
    assert mail.to == ["joerg@xn--mller-kva.example"]


@pytest.mark.parametrize("code", ["553 5.6.7 not beyond this hop", "550 5.1.1 nobody"])
def test_a_refusal_by_a_server_that_offers_it_is_final(server: MailServer, code: str) -> None:
    server.answers["j\u00f6rg@example.com"] = code
    with pytest.raises(Refused):
        send("j\u00f6rg@example.com")


def test_a_server_that_is_busy_is_tried_again(server: MailServer) -> None:
    server.answers["j\u00f6rg@example.com"] = "451 later"
    with pytest.raises(smtplib.SMTPRecipientsRefused):
        send("j\u00f6rg@example.com")


def test_a_mail_kept_as_a_file_names_the_very_mailbox(settings: Any, tmp_path: Path) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    settings.EMAIL_FILE_PATH = str(tmp_path)
    send("j\u00f6rg@example.com")
    (file,) = tmp_path.iterdir()
    assert "To: j\u00f6rg@example.com" in file.read_text("utf-8")
