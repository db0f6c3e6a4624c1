"""Handing a mail over: what is tried again, what is not, and to whom it is told at all."""

import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from procrastinate.jobs import Job

from config.platform.jobs import mail
from config.platform.jobs.mail import Refused, deliver, new_message_id
from config.platform.jobs.queue import BACKOFF, FailedForGood
from tests.standins.mail_server import ENDLESS, MailServer
from tests.standins.raw_server import nobody

pytestmark = pytest.mark.django_db
HOST = "127.0.0.1"
# The bound of a wait for a condition.
SECONDS = 60.0


def certificate(folder: Path, now: datetime) -> Path:
    """A file with a certificate for this host that nobody but itself has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "certificate.pem"
    file.write_bytes(signed.public_bytes(pem) + private)
    return file


@pytest.fixture
def trusted(tmp_path: Path, now: datetime) -> Path:
    return certificate(tmp_path, now)


@pytest.fixture
def server(trusted: Path) -> Iterator[MailServer]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(trusted)
    server = MailServer(tls=tls)
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _by_it(settings: Any, server: MailServer) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = HOST, server.port


def send(to: str = "ada@acme.test", **more: str) -> None:
    deliver(to=[to], subject="Hello", text="Hello", **more)


def test_a_mail_has_the_id_of_its_job(server: MailServer) -> None:
    queued = new_message_id()
    send(message_id=queued)
    assert [mail.message["Message-ID"] for mail in server.mails] == [queued]


def test_a_mail_sent_directly_has_a_new_id(server: MailServer) -> None:
    send()
    send()
    assert len({mail.message["Message-ID"] for mail in server.mails}) == 2


@pytest.mark.parametrize(
    ("stored", "receiver"),
    [
        # The library's own encoding names strasse.example, which is another domain.
        ("lea@straße.example", "lea@xn--strae-oqa.example"),
        # keycloak/keycloak#18409
        ("max@maßanfertigung.de", "max@xn--maanfertigung-cdb.de"),
        # zammad/zammad#2401
        ("zammad@äggsbärden.de", "zammad@xn--ggsbrden-zzae.de"),
        # mozilla/persona#1370, with a sigma at the end of a label
        ("test@δοκιμής.δοκιμή", "test@xn--jxalpdlpz.xn--jxalpdlp"),
        ("lea@bu\u0308cher.example", "lea@xn--bcher-kva.example"),
        ("Ops <Ops@Straße.example>", "Ops@xn--strae-oqa.example"),
        ("lea@i❤.ws", "lea@xn--i-7iq.ws"),
        ("Ada@acme.test", "Ada@acme.test"),
    ],
)
def test_mail_goes_to_the_mailbox_that_is_compared(
    server: MailServer, settings: Any, stored: str, receiver: str
) -> None:
    settings.DEFAULT_FROM_EMAIL = f"Shell <{stored.partition('<')[2].strip('>') or stored}>"
    send(to=stored)
    (mail,) = server.mails
    assert mail.to == [receiver]
    assert receiver in mail.message["To"]
    assert receiver in mail.message["From"]


def test_mail_is_sent_by_tls_to_a_trusted_server(
    server: MailServer, settings: Any, monkeypatch: pytest.MonkeyPatch, trusted: Path
) -> None:
    settings.EMAIL_USE_TLS = True
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    send()
    assert len(server.mails) == 1


def test_mail_is_not_sent_to_an_untrusted_server(server: MailServer, settings: Any) -> None:
    settings.EMAIL_USE_TLS = True
    with pytest.raises(ssl.SSLCertVerificationError):
        send()
    assert server.mails == []


def test_a_server_without_tls_is_tried_again(server: MailServer, settings: Any) -> None:
    settings.EMAIL_USE_TLS = True
    server.tls = None
    with pytest.raises(smtplib.SMTPNotSupportedError):
        send()
    assert server.mails == []


class TestServersThatNeverEnd:
    """They send a little within every limit to a silence."""

    @pytest.fixture(autouse=True)
    def _short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mail, "MOST_SECONDS", 1.0)

    @pytest.mark.parametrize("tls", [False, True])
    def test_an_endless_answer_is_cut(
        self,
        *,
        server: MailServer,
        settings: Any,
        monkeypatch: pytest.MonkeyPatch,
        trusted: Path,
        tls: bool,
    ) -> None:
        settings.EMAIL_USE_TLS = tls
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        server.answers["ada@acme.test"] = ENDLESS
        assert isinstance(what_ends(send), TimeoutError)
        server.answers.clear()
        monkeypatch.setattr(mail, "MOST_SECONDS", SECONDS)
        send()
        assert len(server.mails) == 1

    def test_an_endless_handshake_is_cut(self, settings: Any) -> None:
        settings.EMAIL_USE_SSL = True
        with socket.create_server((HOST, 0)) as listener:
            settings.EMAIL_PORT = listener.getsockname()[1]
            threading.Thread(target=trickle, args=[listener], daemon=True).start()
            assert isinstance(what_ends(send), TimeoutError)


def what_ends(doing: Callable[[], None]) -> OSError | None:
    """Returns the error raised; None where it has not ended in time, or has not failed."""
    raised: list[OSError] = []

    def do() -> None:
        try:
            doing()
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return raised[0] if raised else None


def trickle(listener: socket.socket) -> None:
    """A record of TLS that is long, a byte now and then."""
    client, _ = listener.accept()
    with client, suppress(OSError):
        client.sendall(b"\x16\x03\x03\x3f\xff")
        while True:
            time.sleep(0.2)
            client.sendall(b"\x00")


def test_a_permanent_refusal_of_a_recipient_is_not_tried_again(server: MailServer) -> None:
    server.answers["gone@acme.test"] = "550 gone@acme.test is no person of ours"
    with pytest.raises(Refused) as refused:
        send("gone@acme.test")
    assert "gone" not in repr(refused.value)


def test_a_temporary_refusal_of_a_recipient_is_tried_again(server: MailServer) -> None:
    server.answers["ada@acme.test"] = "451 come back later"
    with pytest.raises(smtplib.SMTPRecipientsRefused):
        send()


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (smtplib.SMTPDataError(554, b"looks like junk"), True),
        (smtplib.SMTPDataError(452, b"disk full"), False),
        (smtplib.SMTPSenderRefused(550, b"who are you", "shell@shell.test"), False),
        (smtplib.SMTPAuthenticationError(535, b"wrong password"), False),
        (smtplib.SMTPServerDisconnected("went away"), False),
        (smtplib.SMTPRecipientsRefused({"a@b.test": (550, b""), "b@b.test": (451, b"")}), False),
    ],
)
def test_only_refusals_of_the_mail_itself_are_final(
    monkeypatch: pytest.MonkeyPatch, error: smtplib.SMTPException, final: bool
) -> None:
    def fail(self: Any, *_: Any) -> None:
        raise error

    monkeypatch.setattr(smtplib.SMTP, "sendmail", fail)
    with pytest.raises(Refused if final else type(error)):
        send()


def test_the_wait_for_a_silent_server_ends(settings: Any) -> None:
    settings.EMAIL_TIMEOUT = 0.2
    with socket.create_server((HOST, 0)) as silent:
        settings.EMAIL_PORT = silent.getsockname()[1]
        with pytest.raises(smtplib.SMTPServerDisconnected):
            send()


def test_a_server_that_is_away_is_tried_again(settings: Any) -> None:
    with nobody() as port:
        settings.EMAIL_PORT = port
        with pytest.raises(ConnectionRefusedError):
            send()


def test_waits_grow_to_an_hour_and_end_after_a_day(now: datetime) -> None:
    def wait(attempts: int, error: Exception) -> timedelta | None:
        job = Job(
            id=1,
            queue="mail",
            lock=None,
            queueing_lock=None,
            task_name="mail.send",
            attempts=attempts,
        )
        again = BACKOFF.get_retry_decision(exception=error, job=job)
        return again and again.retry_at and again.retry_at - now

    waits = []
    while (found := wait(len(waits), OSError())) is not None:
        waits.append(found)
    minutes = [each.total_seconds() / 60 for each in waits]
    assert minutes == sorted(minutes)
    assert minutes[0] < 1
    assert 60 <= max(minutes) < 62
    assert 23 * 60 < sum(minutes) < 25 * 60
    assert wait(0, FailedForGood()) is None
