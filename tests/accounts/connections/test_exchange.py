"""Requests to a provider: in time, in bounds, and as nobody but us."""

from collections.abc import Iterator
from threading import Event

import pytest

from accounts.connections import exchange
from config.platform.http.errors import ExchangeError
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


@pytest.mark.parametrize("drip_in", ["body", "nothing at all"])
def test_a_provider_that_takes_too_long_is_cut_off(
    party: Party, monkeypatch: pytest.MonkeyPatch, drip_in: str
) -> None:
    # Long enough to be sent, and shorter than the answer.
    monkeypatch.setattr(exchange, "MOST_SECONDS", 2.0)
    cut = Event()
    wait = Said(200, before=lambda _: cut.wait(60) and None)
    party.answers = [Said(200, b"x" * 2000, drip=0.02) if drip_in == "body" else wait]
    with pytest.raises(ExchangeError) as raised:
        exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b")
    cut.set()
    assert (raised.value.reason, raised.value.sent) == ("too_slow", True)


def test_an_answer_that_is_too_long_is_none(party: Party) -> None:
    party.answers = [Said(200, b" " * (exchange.MOST_BYTES + 1))]
    with pytest.raises(ExchangeError) as raised:
        exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b")
    assert raised.value.sent


def test_nobody_there_means_that_nothing_was_sent() -> None:
    with pytest.raises(ExchangeError) as raised:
        exchange.post(f"http://127.0.0.1:{free('127.0.0.1', 0)}/", exchange.HEADERS, "a=b")
    assert (raised.value.reason, raised.value.sent) == ("unreachable", False)


def test_nothing_is_sent_once_the_time_is_over(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease may be another's by then, and a refresh token sent twice looks stolen."""
    monkeypatch.setattr(exchange, "MOST_SECONDS", 0.0)
    with pytest.raises(ExchangeError) as raised:
        exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b")
    assert (raised.value.reason, raised.value.sent) == ("too_slow", False)
    assert party.forms == []


def test_a_document_nested_too_deep_is_none(party: Party) -> None:
    party.answers = [Said(200, b"[" * 60_000)]
    assert exchange.post(f"{party.url}/token", exchange.HEADERS, "a=b").members() == {}
