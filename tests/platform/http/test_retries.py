"""Requests that are sent to a provider again, and those that never are: over real sockets."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from config.platform.http import client, retries, transfer
from config.platform.http.client import Client
from config.platform.http.errors import Broken, ExchangeError, TimedOut, Unreachable
from config.platform.http.exchange import Exchange, Limits
from tests.platform.http.readers import assert_cut, readers, readers_counted
from tests.standins.raw_server import GENEROUS, Peer, nobody, playing
from tests.waiting import eventually

BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n%s\r\n{}"
Script = Callable[[Peer], None]

# An address that no other test uses, so that none takes a port that is free for a moment.
ALONE = "127.0.0.23"


@pytest.fixture(autouse=True)
def short_waits() -> Iterator[None]:
    with mock.patch.object(retries, "FIRST_WAIT", 0.02), readers_counted():
        yield


@pytest.fixture
def session() -> Iterator[Client]:
    with closing(Client()) as session:
        yield session


def ask(session: Client, url: str, **options: Any) -> Exchange:
    now, read = time.monotonic(), options.get("read_timeout", GENEROUS)
    limits = Limits(
        connect_timeout=GENEROUS,
        first_byte_timeout=options.get("first_byte_timeout", read),
        read_timeout=read,
        deadline=now + 3 * GENEROUS,
        max_bytes=1_000_000,
        retry_until=now + options.get("patience", GENEROUS),
        has_next=options.get("has_next", False),
    )
    return Exchange(session, url=url, headers={}, body=b"{}", limits=limits)


def got(exchange: Exchange) -> tuple[int, bytes]:
    with exchange:
        head = exchange.head(GENEROUS)
        assert head is not None
        return head.status, exchange.body()


def failed(exchange: Exchange) -> ExchangeError:
    with exchange, pytest.raises(ExchangeError) as raised:
        exchange.head(GENEROUS)
    return raised.value


class Turns:
    """A script for each request in turn, on whatever connection it comes; the last one again and again."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.requests: list[float] = []

    def __call__(self, peer: Peer) -> None:
        while peer.sock.fileno() != -1 and peer.request():
            self.requests.append(time.monotonic())
            (self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0])(peer)


def answers(peer: Peer) -> None:
    peer.answer(b"good")


def refuses(*headers: bytes) -> Script:
    return lambda peer: peer.send(BUSY % b"".join(each + b"\r\n" for each in headers))


def test_a_provider_that_is_being_restarted_is_reached(session: Client) -> None:
    """A connection that is refused has carried nothing."""
    with socket.create_server((ALONE, 0)) as unused:
        port = unused.getsockname()[1]
    refused = threading.Event()
    waiting = mock.patch.object(
        retries.Retries,
        "_wait",
        autospec=True,
        side_effect=lambda *_: refused.set() or 0.5,
    )
    with waiting:
        exchange = ask(session, f"http://{ALONE}:{port}/v1")
        assert refused.wait(GENEROUS)
        with socket.create_server((ALONE, port)) as listener:
            thread = threading.Thread(target=got, args=(exchange,))
            thread.start()
            sock, _ = listener.accept()
            peer = Peer(sock)
            assert peer.request()
            answers(peer)
            thread.join(GENEROUS)
            assert not thread.is_alive()
            peer.close()


def test_a_closed_port_is_tried_a_few_times_and_then_unreachable(session: Client) -> None:
    counted = mock.patch.object(
        retries.Retries,
        "wait_after_failure",
        autospec=True,
        side_effect=retries.Retries.wait_after_failure,
    )
    with nobody() as port, counted as asked:
        error = failed(ask(session, f"http://127.0.0.1:{port}/v1"))
    assert isinstance(error, Unreachable)
    assert not error.sent
    assert asked.call_count == retries.MOST_ATTEMPTS


@pytest.mark.parametrize("headers", [(), (b"Retry-After: 1",)])
def test_a_refusal_is_final_with_another_route_left(
    session: Client, headers: tuple[bytes, ...]
) -> None:
    turns = Turns(refuses(*headers), answers)
    with playing(turns) as provider:
        status, _ = got(ask(session, provider.url, has_next=True))
    assert (status, len(turns.requests)) == (503, 1)


def test_a_closed_port_is_tried_once_with_another_route_left(session: Client) -> None:
    never = mock.patch.object(retries.Retries, "_wait", side_effect=AssertionError)
    with nobody() as port, never:
        error = failed(ask(session, f"http://127.0.0.1:{port}/v1", has_next=True))
    assert isinstance(error, Unreachable)


@pytest.fixture
def _slow_machine() -> Iterator[None]:
    """However long it takes here to ask again, and to see that a connection has ended, it was at once."""
    with (
        mock.patch.object(retries, "STALE_SECONDS", GENEROUS),
        mock.patch.object(client, "MAX_IDLE_SECONDS", GENEROUS),
    ):
        yield


@pytest.mark.usefixtures("_slow_machine")
@pytest.mark.parametrize("has_next", [True, False])
@pytest.mark.parametrize("ends", [Peer.close, Peer.reset])
def test_a_stale_connection_causes_no_error(session: Client, ends: Script, has_next: bool) -> None:
    turns = Turns(answers, ends, answers)
    with playing(turns) as provider:
        assert got(ask(session, provider.url)) == (200, b"good")
        assert got(ask(session, provider.url, has_next=has_next)) == (200, b"good")
        # The second try went over a connection that nobody had used before.
        assert (len(turns.requests), provider.connections) == (3, 2)


@pytest.mark.usefixtures("_slow_machine")
def test_several_stale_connections_cause_one_retry(session: Client) -> None:
    together = threading.Barrier(3)

    def answer_together(peer: Peer) -> None:
        together.wait(GENEROUS)
        answers(peer)

    turns = Turns(answer_together, answer_together, answer_together, Peer.close, answers)
    with playing(turns) as provider:
        exchanges = [ask(session, provider.url) for _ in range(3)]
        assert [got(each) for each in exchanges] == [(200, b"good")] * 3
        assert got(ask(session, provider.url)) == (200, b"good")
        assert (len(turns.requests), provider.connections) == (5, 4)


@pytest.mark.parametrize("ends", [Peer.close, Peer.reset])
def test_a_failure_on_a_new_connection_is_not_retried(session: Client, ends: Script) -> None:
    turns = Turns(ends, answers)
    with playing(turns) as provider:
        error = failed(ask(session, provider.url))
    assert isinstance(error, Broken)
    assert error.sent
    assert len(turns.requests) == 1


def test_a_late_failure_on_a_reused_connection_is_not_retried(
    session: Client,
) -> None:
    def works(peer: Peer) -> None:
        time.sleep(0.3)
        peer.reset()

    turns = Turns(answers, works, answers)
    with playing(turns) as provider:
        got(ask(session, provider.url))
        assert isinstance(failed(ask(session, provider.url)), Broken)
    assert len(turns.requests) == 2


def test_a_failure_after_one_byte_is_not_retried(session: Client) -> None:
    def begins(peer: Peer) -> None:
        peer.send(b"H")
        peer.reset()

    turns = Turns(answers, begins, answers)
    with playing(turns) as provider:
        got(ask(session, provider.url))
        assert isinstance(failed(ask(session, provider.url)), Broken)
    assert len(turns.requests) == 2


def test_silence_is_not_retried(session: Client) -> None:
    turns = Turns(answers, Peer.wait_until_gone)
    with playing(turns) as provider:
        got(ask(session, provider.url))
        assert isinstance(failed(ask(session, provider.url, read_timeout=0.1)), TimedOut)
        assert provider.gone.wait(GENEROUS) or eventually(lambda: len(turns.requests) == 2)
    assert len(turns.requests) == 2


@pytest.mark.parametrize("status", [b"503 Busy", b"529 Overloaded", b"429 Slow down"])
def test_a_refusal_with_retry_after_is_retried_then(session: Client, status: bytes) -> None:
    def refuse(peer: Peer) -> None:
        peer.send((BUSY % b"Retry-After: 1\r\n").replace(b"503 Busy", status))

    turns = Turns(refuse, answers)
    with playing(turns) as provider:
        assert got(ask(session, provider.url)) == (200, b"good")
    assert turns.requests[1] - turns.requests[0] >= 1.0


@pytest.mark.parametrize(
    "past", [b"Sun, 06 Nov 1994 08:49:37 GMT", b"1994-11-06T08:49:37Z", b"0.0", b"0.25"]
)
def test_retry_after_may_be_a_date_in_the_past_or_a_fraction(session: Client, past: bytes) -> None:
    turns = Turns(refuses(b"Retry-After: %b" % past), answers)
    with playing(turns) as provider:
        assert got(ask(session, provider.url)) == (200, b"good")
    assert len(turns.requests) == 2


def test_a_busy_provider_is_retried_a_few_times(session: Client) -> None:
    turns = Turns(refuses())
    with playing(turns) as provider:
        assert got(ask(session, provider.url)) == (503, b"{}")
    assert len(turns.requests) == retries.MOST_ATTEMPTS


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        ((b"Retry-After: 3",), {}),
        ((b"Retry-After: 3600",), {}),
        ((b"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT",), {}),
        ((b"Retry-After: soon",), {}),
        # planningcenter/developers#606
        ((b"Retry-After: -7",), {}),
        ((b"Retry-After: 2.5",), {}),
        ((b"Retry-After: 99999999999999999999",), {}),
        ((b"x-should-retry: false",), {}),
        ((), {"patience": 0.0}),
        ((b"Retry-After: 2",), {"patience": 1.5}),
    ],
)
def test_a_refusal_is_final_if_a_retry_is_too_late_or_useless(
    session: Client, headers: tuple[bytes, ...], options: dict[str, float]
) -> None:
    turns = Turns(refuses(*headers))
    with playing(turns) as provider:
        assert got(ask(session, provider.url, **options)) == (503, b"{}")
    assert len(turns.requests) == 1


@pytest.mark.parametrize("status", ["400", "401", "404", "408", "409", "429", "500", "502", "504"])
def test_every_other_refusal_is_final(session: Client, status: str) -> None:
    turns = Turns(
        lambda peer: peer.send((BUSY % b"").replace(b"503 Busy", f"{status} No".encode()))
    )
    with playing(turns) as provider:
        assert got(ask(session, provider.url)) == (int(status), b"{}")
    assert len(turns.requests) == 1


def test_closing_during_a_wait_ends_the_retries(session: Client) -> None:
    turns, waits, over = Turns(refuses()), threading.Event(), threading.Event()

    def sleep(seconds: float) -> None:
        waits.set()
        assert over.wait(GENEROUS)

    waiting = mock.patch.object(transfer, "time", SimpleNamespace(sleep=sleep))
    with playing(turns) as provider, waiting:
        exchange = ask(session, provider.url)
        assert waits.wait(GENEROUS)
        exchange.close()
        assert isinstance(failed(exchange), Broken)
        assert_cut()
        # A thread cannot be interrupted, but sends nothing once its wait is over.
        over.set()
        eventually(lambda: not readers())
    assert len(turns.requests) == 1


def test_silence_before_the_first_byte_of_an_answer_has_its_own_limit(
    session: Client,
) -> None:
    released = threading.Event()

    def thinks(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert released.wait(GENEROUS)
        peer.chunk(b"said")

    with playing(Turns(thinks)) as provider:
        exchange = ask(session, provider.url, first_byte_timeout=GENEROUS, read_timeout=0.2)
        with exchange:
            assert exchange.head(GENEROUS) is not None
            # Longer than a silence may be once the answer has begun.
            assert exchange.chunk(0.5) is None
            released.set()
            assert exchange.chunk(GENEROUS) == b"said"
            with pytest.raises(TimedOut):
                exchange.chunk(GENEROUS)


def test_the_first_byte_timeout_may_be_shorter_than_the_read_timeout(
    session: Client,
) -> None:
    with playing(Turns(Peer.wait_until_gone)) as provider:
        asked = ask(session, provider.url, first_byte_timeout=0.1)
        assert isinstance(failed(asked), TimedOut)
