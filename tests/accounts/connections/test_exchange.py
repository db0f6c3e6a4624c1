"""How a provider is asked: in time, in bounds, and as nobody but us."""

import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from accounts.connections import exchange
from config.http.one_answer import NoAnswer
from tests.accounts.connections.party import Party, Said, running_party
from tests.tools.ports import free


@pytest.fixture
def party() -> Iterator[Party]:
    with running_party() as party:
        yield party


def test_an_answer_in_time_is_read_whole(party: Party) -> None:
    party.answers = [Said(200, b'{"a": 1}')]
    answer = exchange.post(f"{party.url}/token?x=1", exchange.HEADERS, "a=b")
    assert (answer.status_code, answer.members()) == (200, {"a": 1})
    assert party.forms == [{"a": "b", "path": "/token?x=1"}]


def test_a_redirect_is_an_answer_and_not_followed(party: Party) -> None:
    party.answers = [Said(307, headers={"Location": f"{party.url}/elsewhere"})]
    assert exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b").status_code == 307
    assert len(party.forms) == 1


def test_proxies_of_the_environment_are_not_used(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    party.answers = [Said(200)]
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b").status_code == 200


@pytest.mark.parametrize("drip_in", ["body", "nothing at all"])
def test_whoever_takes_too_long_is_cut_off(
    party: Party, monkeypatch: pytest.MonkeyPatch, drip_in: str
) -> None:
    monkeypatch.setattr(exchange, "MOST_SECONDS", 0.5)
    wait = Said(200, before=lambda _: time.sleep(1.5))
    party.answers = [Said(200, b"x" * 2000, drip=0.02) if drip_in == "body" else wait]
    with pytest.raises(NoAnswer) as raised:
        exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b")
    assert (raised.value.reason, raised.value.sent) == ("too_slow", True)


def certificate(folder: Path) -> Path:
    """Of this machine, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "party")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, SHA256())
    )
    file = folder / "party.pem"
    own = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(made.public_bytes(Encoding.PEM) + own)
    return file


def test_over_tls_only_who_can_prove_their_name_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    with running_party(tls) as party:
        party.answers = [Said(200, b'{"a": 1}')]
        with pytest.raises(NoAnswer) as raised:
            exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b")
        assert not raised.value.sent
        assert party.forms == []
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        answer = exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b")
        assert answer.members() == {"a": 1}
        monkeypatch.setattr(exchange, "MOST_SECONDS", 0.5)
        party.answers = [Said(200, b"x" * 2000, drip=0.02)]
        with pytest.raises(NoAnswer) as raised:
            exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b")
        assert raised.value.reason == "too_slow"


def test_an_answer_that_is_too_long_is_none(party: Party) -> None:
    party.answers = [Said(200, b" " * (exchange.MOST_BYTES + 1))]
    with pytest.raises(NoAnswer) as raised:
        exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b")
    assert raised.value.sent


def test_an_answer_that_breaks_off_is_none(party: Party) -> None:
    party.answers = [Said(200, b'{"a": 1}', {"Content-Length": "500"})]
    with pytest.raises(NoAnswer):
        exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b")


def test_nobody_there_means_that_nothing_was_sent() -> None:
    with pytest.raises(NoAnswer) as raised:
        exchange.post(f"http://127.0.0.1:{free('127.0.0.1', 0)}/", exchange.HEADERS, "a=b")
    assert (raised.value.reason, raised.value.sent) == ("unreachable", False)


def test_nothing_is_sent_once_the_time_is_over(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease may be another's by then, and a refresh token sent twice looks stolen."""
    monkeypatch.setattr(exchange, "MOST_SECONDS", 0.0)
    with pytest.raises(NoAnswer) as raised:
        exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b")
    assert (raised.value.reason, raised.value.sent) == ("too_slow", False)
    assert party.forms == []


def test_a_document_nested_too_deep_is_none(party: Party) -> None:
    party.answers = [Said(200, b"[" * 60_000)]
    assert exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b").members() == {}
