"""Exchanges over real sockets, with threads; the last test runs the rest again under gevent."""

import contextlib
import gzip
import ipaddress
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509

from config.platform.http import client
from config.platform.http.client import Client, prepared
from config.platform.http.errors import Broken, ExchangeError, TimedOut, TooLarge, Unreachable
from config.platform.http.exchange import Exchange, Limits
from tests.pairing import each_once
from tests.platform.http.readers import CAN_INTERRUPT, assert_cut, readers, readers_counted
from tests.standins.raw_server import (
    CHUNKED,
    GENEROUS,
    OK,
    Authority,
    Peer,
    Provider,
    nobody,
)
from tests.waiting import eventually

# A silence that is waited for on purpose.
SHORT = 0.1
# A connection that is cut while it is being made is closed by its last reference, of which Python warns.
closed_by_reference = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)


# A test that stands still for longer than this would get another connection than it asks for.
IDLE_SECONDS = client.MAX_IDLE_SECONDS


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_IDLE_SECONDS", GENEROUS)


@pytest.fixture(autouse=True)
def no_reader_remains() -> Iterator[None]:
    with readers_counted():
        yield
        assert_cut()


LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server_tls(authority: Authority) -> ssl.SSLContext:
    return authority.server(LOOPBACK)


@pytest.fixture
def session(authority: Authority) -> Iterator[Client]:
    with contextlib.closing(Client(ca_bundle=str(authority.bundle))) as session:
        yield session


Start = Callable[..., Provider]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start providers; what went wrong in their scripts fails the test."""
    providers: list[Provider] = []

    def _start(script: Callable[[Peer], None], tls: ssl.SSLContext | None = None) -> Provider:
        providers.append(Provider(script, tls))
        return providers[-1]

    yield _start
    for provider in providers:
        provider.stop()
    assert [provider.errors for provider in providers if provider.errors] == []


@pytest.fixture(params=["http", "https"])
def tls(request: pytest.FixtureRequest, server_tls: ssl.SSLContext) -> ssl.SSLContext | None:
    return server_tls if request.param == "https" else None


def ask(session: Client, url: str, **options: Any) -> Exchange:
    """An exchange that waits longer than any test, unless told otherwise."""
    read = options.pop("read_timeout", 2 * GENEROUS)
    limits = Limits(
        connect_timeout=options.pop("connect_timeout", 2 * GENEROUS),
        first_byte_timeout=options.pop("first_byte_timeout", read),
        read_timeout=read,
        deadline=time.monotonic() + options.pop("lasts", 3 * GENEROUS),
        max_bytes=options.pop("max_bytes", 1_000_000),
        retry_until=time.monotonic() + options.pop("patience", 0.0),
        address_timeout=options.pop("address_timeout", None),
    )
    given = {"headers": {"Authorization": "Bearer hidden-key"}, "body": b'{"stream": true}'}
    return Exchange(session, url=url, limits=limits, **(given | options))


def everything(exchange: Exchange) -> bytes:
    """All pieces up to the end; fails the test on a silence."""
    pieces = []
    while piece := exchange.chunk(GENEROUS):
        pieces.append(piece)
    assert piece == b""
    return b"".join(pieces)


# Answers


def with_length(peer: Peer) -> None:
    peer.request()
    peer.answer(b"one two three")


def chunked(peer: Peer) -> None:
    peer.request()
    peer.send(CHUNKED)
    for data in (b"one", b" two", b" three"):
        peer.chunk(data)
    peer.chunk(b"")


def until_closed(peer: Peer) -> None:
    peer.request()
    peer.send(OK + b"\r\none two three")
    peer.close()


@pytest.mark.parametrize("script", [with_length, chunked, until_closed])
def test_an_answer_arrives_whole_however_its_end_is_marked(
    start: Start,
    session: Client,
    tls: ssl.SSLContext | None,
    script: Callable[[Peer], None],
) -> None:
    with ask(session, start(script, tls).url) as exchange:
        head = exchange.head(GENEROUS)
        assert head is not None
        assert head.status == 200
        assert everything(exchange) == b"one two three"
        assert exchange.chunk(GENEROUS) == b""
    with ask(session, start(script, tls).url) as exchange:
        assert exchange.body() == b"one two three"


def test_status_and_headers_are_returned_with_case_insensitive_names(
    start: Start, session: Client
) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 429 Slow Down\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno")

    with ask(session, start(script).url) as exchange:
        head = exchange.head(GENEROUS)
        assert head is not None
        assert (head.status, head.headers["retry-after"]) == (429, "7")
        assert exchange.head(0) is head
        assert exchange.body() == b"no"


def test_an_answer_before_the_end_of_the_request_is_returned(start: Start, session: Client) -> None:
    asked = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        # Of a body that is too large, no more is read than it takes to say so.
        peer.sock.recv(1000)
        asked.release()
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        peer.close()

    body = b"x" * 16 * 1024 * 1024
    with ask(session, start(script).url, body=body, patience=GENEROUS) as exchange:
        head = exchange.head(GENEROUS)
        assert head is not None
        assert head.status == 413
        assert exchange.body() == b"no"
    assert asked.acquire(timeout=GENEROUS)
    assert not asked.acquire(timeout=SHORT)


def test_a_silence_after_the_first_bytes_counts_as_within_the_answer(
    start: Start, session: Client
) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(OK + b"Content-Length: 20\r\n\r\nonly this")
        peer.wait_until_gone()

    # Another limit would end it as late, not as silent.
    limits = {"read_timeout": 0.3, "first_byte_timeout": 4 * GENEROUS, "lasts": GENEROUS}
    with (
        ask(session, start(script).url, **limits) as exchange,
        pytest.raises(TimedOut, match="silent"),
    ):
        exchange.body()


def test_the_repr_of_a_request_does_not_show_its_content() -> None:
    shown = repr(
        prepared("POST", "http://hidden.test/", {"Authorization": "Bearer hidden-key"}, b"what")
    )
    assert "hidden" not in shown
    assert "what" not in shown


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 204 Gone Quiet\r\n\r\n", OK + b"Content-Length: 0\r\n\r\n"]
)
def test_an_answer_without_a_body_ends_at_once(start: Start, session: Client, head: bytes) -> None:
    def script(peer: Peer) -> None:
        while peer.request():
            peer.send(head)

    provider = start(script)
    for _ in range(2):
        with ask(session, provider.url) as exchange:
            assert exchange.chunk(GENEROUS) == b""
    assert provider.connections == 1


def test_the_provider_gets_the_request_unchanged_and_without_encodings(
    start: Start, session: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    received: list[bytes] = []

    def script(peer: Peer) -> None:
        while request := peer.request():
            received.append(request)
            peer.send(OK + b"Set-Cookie: a=b; Path=/\r\nContent-Length: 2\r\n\r\nok")

    provider = start(script)
    for _ in range(2):
        with ask(
            session, provider.url, headers={"X-One": "1", "accept-encoding": "gzip"}
        ) as exchange:
            assert exchange.body() == b"ok"
    assert received[0] == received[1]
    head, _, body = received[0].partition(b"\r\n\r\n")
    lines = [line.lower() for line in head.split(b"\r\n")]
    assert lines[0] == b"post /v1/chat http/1.1"
    assert {b"x-one: 1", b"accept-encoding: identity", b"content-length: 16"} < set(lines)
    assert body == b'{"stream": true}'


def test_each_piece_is_returned_before_the_next_is_sent(
    start: Start, session: Client, tls: ssl.SSLContext | None
) -> None:
    taken = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(CHUNKED)
        for i in range(5):
            assert taken.acquire(timeout=GENEROUS)
            peer.chunk(b"data: %d\n\n" % i)
        peer.chunk(b"")

    with ask(session, start(script, tls).url) as exchange:
        assert exchange.head(GENEROUS) is not None
        for i in range(5):
            taken.release()
            assert exchange.chunk(GENEROUS) == b"data: %d\n\n" % i
        assert exchange.chunk(GENEROUS) == b""


def test_a_redirect_is_an_answer_like_any_other(start: Start, session: Client) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 5\r\n\r\nthere")

    provider = start(script)
    with ask(session, provider.url) as exchange:
        head = exchange.head(GENEROUS)
        assert head is not None
        assert head.status == 302
        assert exchange.body() == b"there"
    assert provider.connections == 1


def test_an_encoded_answer_is_refused_after_the_head(start: Start, session: Client) -> None:
    body = gzip.compress(b"one two three")

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    provider = start(script)
    with ask(session, provider.url) as exchange:
        assert exchange.head(GENEROUS) is not None
        with pytest.raises(Broken) as caught:
            exchange.chunk(GENEROUS)
        assert caught.value.sent
    assert provider.gone.wait(GENEROUS)


def test_many_exchanges_share_one_session(start: Start, session: Client) -> None:
    together = threading.Barrier(20)

    def script(peer: Peer) -> None:
        while request := peer.request():
            together.wait(GENEROUS)
            peer.answer(request.partition(b"\r\n\r\n")[2])

    provider = start(script)
    for _ in range(2):
        exchanges = [ask(session, provider.url, body=b"%d" % i) for i in range(20)]
        assert [exchange.body() for exchange in exchanges] == [b"%d" % i for i in range(20)]
    assert provider.connections == 20


# Silence and deadline


def before_the_head(peer: Peer) -> None:
    peer.request()


def before_the_first_byte(peer: Peer) -> None:
    peer.request()
    peer.send(CHUNKED)


def between_chunks(peer: Peer) -> None:
    peer.request()
    peer.send(CHUNKED)
    peer.chunk(b"one")


def within_a_chunk(peer: Peer) -> None:
    peer.request()
    peer.send(CHUNKED + b"9\r\none")


def within_a_length(peer: Peer) -> None:
    peer.request()
    peer.send(OK + b"Content-Length: 9\r\n\r\none")


def without_a_length(peer: Peer) -> None:
    peer.request()
    peer.send(OK + b"Connection: close\r\n\r\none")


STAGES = [
    before_the_head,
    before_the_first_byte,
    between_chunks,
    within_a_chunk,
    within_a_length,
    without_a_length,
]
HEADLESS = [before_the_head]
BODILESS = [before_the_head, before_the_first_byte]


def bring_to(stage: Callable[[Peer], None], exchange: Exchange) -> None:
    """Take what the provider sends up to the silence of `stage`."""
    if stage not in HEADLESS:
        assert exchange.head(GENEROUS) is not None
    if stage not in BODILESS:
        assert exchange.chunk(GENEROUS) == b"one"


@pytest.mark.parametrize("stage", STAGES)
def test_silence_returns_none_and_then_times_out(
    start: Start, session: Client, stage: Callable[[Peer], None]
) -> None:
    silence_is_nothing_yet_and_then_a_time_out(start(stage), session, stage)


@pytest.mark.parametrize("stage", [before_the_head, between_chunks])
def test_silence_over_tls_is_the_same(
    start: Start,
    session: Client,
    server_tls: ssl.SSLContext,
    stage: Callable[[Peer], None],
) -> None:
    silence_is_nothing_yet_and_then_a_time_out(start(stage, server_tls), session, stage)


def silence_is_nothing_yet_and_then_a_time_out(
    provider: Provider, session: Client, stage: Callable[[Peer], None]
) -> None:
    with ask(session, provider.url) as exchange:
        bring_to(stage, exchange)
        if stage in HEADLESS:
            assert exchange.head(SHORT) is None
        assert exchange.chunk(SHORT) is None
    assert_cut(provider)
    provider.gone.clear()
    with ask(session, provider.url, read_timeout=SHORT) as exchange:
        # On a slow machine the silence may come before what is to be sent.
        with pytest.raises(TimedOut) as caught:
            wait_beyond(stage, exchange)
        assert caught.value.sent
        assert provider.gone.wait(GENEROUS)
        with pytest.raises(TimedOut):
            exchange.chunk(GENEROUS)


def wait_beyond(stage: Callable[[Peer], None], exchange: Exchange) -> None:
    bring_to(stage, exchange)
    exchange.chunk(GENEROUS)


def dripping_chunks(peer: Peer) -> None:
    peer.request()
    peer.send(CHUNKED)
    with contextlib.suppress(OSError):
        while True:
            peer.chunk(b"one")
            time.sleep(0.01)


def dripping_headers(peer: Peer) -> None:
    peer.request()
    peer.send(OK + b"X-Long: ")
    with contextlib.suppress(OSError):
        while True:
            peer.send(b"x")
            time.sleep(0.01)


def dripping_chunk_size(peer: Peer) -> None:
    peer.request()
    peer.send(CHUNKED + b"1; ")
    with contextlib.suppress(OSError):
        while True:
            peer.send(b"x")
            time.sleep(0.01)


DRIPS = [dripping_chunks, dripping_headers, dripping_chunk_size]


@pytest.mark.parametrize("script", [*DRIPS, before_the_head])
def test_the_deadline_ends_an_exchange_that_is_never_silent_for_long(
    start: Start, session: Client, script: Callable[[Peer], None]
) -> None:
    provider = start(script)
    with ask(session, provider.url, lasts=5 * SHORT) as exchange:
        with pytest.raises(TimedOut):
            exchange.body()
        assert_cut(provider)
        with pytest.raises(TimedOut):
            exchange.body()


def test_bytes_that_wait_do_not_lengthen_the_deadline(start: Start, session: Client) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        with contextlib.suppress(OSError):
            peer.send(OK + b"\r\n" + b"x" * 50_000_000)

    provider = start(script)
    with ask(session, provider.url, lasts=5 * SHORT, max_bytes=10**12) as exchange:
        # On a slow machine the first bytes may be too late as well.
        with contextlib.suppress(TimedOut):
            exchange.chunk(GENEROUS)
        time.sleep(6 * SHORT)
        with pytest.raises(TimedOut):
            exchange.chunk(GENEROUS)
        assert_cut(provider)


@pytest.mark.skipif(not CAN_INTERRUPT, reason="a plain thread ends at its timeouts only")
@pytest.mark.parametrize("script", [*DRIPS, before_the_head])
def test_an_exchange_that_nobody_reads_or_closes_ends_at_its_deadline(
    start: Start, session: Client, script: Callable[[Peer], None]
) -> None:
    provider = start(script)
    ask(session, provider.url, lasts=5 * SHORT)
    assert_cut(provider)


@pytest.mark.skipif(not CAN_INTERRUPT, reason="a plain thread ends at its timeouts only")
def test_the_deadline_holds_over_tls_too(
    start: Start, session: Client, server_tls: ssl.SSLContext
) -> None:
    provider = start(dripping_headers, server_tls)
    ask(session, provider.url, lasts=5 * SHORT)
    assert_cut(provider)


def test_a_provider_faster_than_its_consumer_is_not_timed_out(
    start: Start, session: Client
) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        # All of it lies ready at once, however slowly this goes on.
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
        peer.send(CHUNKED + b"3e8\r\n%s\r\n" % (b"x" * 1000) * 100 + b"0\r\n\r\n")

    limits = {"read_timeout": 2 * SHORT, "first_byte_timeout": GENEROUS}
    with ask(session, start(script).url, **limits) as exchange:
        first = exchange.chunk(GENEROUS)
        assert first
        time.sleep(4 * SHORT)
        assert first + everything(exchange) == b"x" * 100_000


# Broken answers


@pytest.mark.parametrize(
    ("leave", "stage"),
    each_once(
        [Peer.close, Peer.reset], [stage for stage in STAGES if stage is not without_a_length]
    ),
)
def test_a_connection_lost_before_the_end_is_broken(
    start: Start,
    session: Client,
    tls: ssl.SSLContext | None,
    stage: Callable[[Peer], None],
    leave: Callable[[Peer], None],
) -> None:
    ready = threading.Event()

    def script(peer: Peer) -> None:
        stage(peer)
        assert ready.wait(GENEROUS)
        leave(peer)

    with ask(session, start(script, tls).url) as exchange:
        bring_to(stage, exchange)
        ready.set()
        reason = "unreachable" if stage in HEADLESS else "truncated"
        for _ in range(2):
            with pytest.raises(Broken) as caught:
                exchange.body()
            assert (caught.value.sent, caught.value.reason) == (True, reason)


def test_a_reset_ends_a_body_without_length_as_broken(start: Start, session: Client) -> None:
    ready = threading.Event()

    def script(peer: Peer) -> None:
        without_a_length(peer)
        assert ready.wait(GENEROUS)
        peer.reset()

    with ask(session, start(script).url) as exchange:
        bring_to(without_a_length, exchange)
        ready.set()
        with pytest.raises(Broken):
            exchange.body()


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-server\r\n\r\n", CHUNKED + b"zz\r\n", OK + b"X: " + b"x" * 70_000]
)
def test_an_answer_that_is_not_http_is_broken(start: Start, session: Client, answer: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(answer)

    provider = start(script)
    with ask(session, provider.url) as exchange:
        with pytest.raises(Broken) as caught:
            exchange.body()
        assert caught.value.sent
        assert provider.gone.wait(GENEROUS)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/2 200 OK\r\n",
        b"HTTP/1.1 20 OK\r\n",
        b"HTTP/1.1 2000 OK\r\n",
        b"\r\n",
        OK + b"no colon\r\n",
        OK + b"Content-Length : 5\r\n",
        OK + b": nameless\r\n",
        OK + b"X: 1\r\n" * 101,
        *(
            OK + b"Content-Length: " + length + b"\r\n"
            for length in (b"5, 6", b"-5", b"+5", b"0x5", b"5 5", b"", b"9" * 16)
        ),
        *(
            OK + b"Transfer-Encoding: " + coding + b"\r\n"
            for coding in (b"gzip", b"gzip, chunked", b"Chunked, deflate")
        ),
    ],
)
def test_an_ambiguous_head_is_broken(start: Start, session: Client, head: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(head + b"\r\nhello")

    provider = start(script)
    with ask(session, provider.url) as exchange:
        with pytest.raises(Broken) as caught:
            exchange.body()
        assert caught.value.sent
        assert "hello" not in str(caught.value)
        assert provider.gone.wait(GENEROUS)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (OK + b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"),
        (OK + b"Transfer-Encoding: Chunked\r\nContent-Length: 9\r\n", b"5\r\nhello\r\n0\r\n\r\n"),
        (
            OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            b"5;name=value\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
        ),
        (OK + b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n", b"hello"),
        (
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK + b"Content-Length: 5\r\n",
            b"hello",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n", b"hello"),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 5\r\n", b"hello"),
    ],
)
def test_a_clear_head_allows_reuse_of_the_connection(
    start: Start, session: Client, head: bytes, body: bytes
) -> None:
    def script(peer: Peer) -> None:
        while peer.request():
            peer.send(head + b"\r\n" + body)

    provider = start(script)
    for _ in range(2):
        with ask(session, provider.url) as exchange:
            first = exchange.head(GENEROUS)
            assert first is not None
            assert first.status == 200
            assert exchange.body() == b"hello"
    assert provider.connections == 1


@pytest.mark.parametrize(
    "head",
    [
        OK + b"Connection: close\r\nContent-Length: 5\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n",
        OK + b"Transfer-Encoding: identity\r\nConnection: close\r\n",
    ],
)
def test_a_connection_that_the_server_closes_is_not_reused(
    start: Start, session: Client, head: bytes
) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(head + b"\r\nhello")
        peer.close()

    provider = start(script)
    for _ in range(2):
        with ask(session, provider.url) as exchange:
            assert exchange.body() == b"hello"
    assert provider.connections == 2


def test_bytes_after_a_body_do_not_belong_to_it(start: Start, session: Client) -> None:
    def script(peer: Peer) -> None:
        while peer.request():
            peer.send(
                OK + b"Content-Length: 5\r\n\r\nhello" + OK + b"Content-Length: 4\r\n\r\nmore"
            )

    provider = start(script)
    for _ in range(2):
        with ask(session, provider.url) as exchange:
            assert exchange.body() == b"hello"


def test_a_request_that_could_not_be_sent_whole_may_be_repeated(
    start: Start, session: Client, tls: ssl.SSLContext | None
) -> None:
    def script(peer: Peer) -> None:
        peer.sock.recv(100)
        peer.reset()

    with ask(session, start(script, tls).url, body=b"x" * 30_000_000) as exchange:
        with pytest.raises(Broken) as caught:
            exchange.head(GENEROUS)
        assert not caught.value.sent


@pytest.mark.parametrize("script", [with_length, chunked, until_closed])
def test_a_body_over_the_limit_is_too_large_and_one_at_the_limit_is_not(
    start: Start, session: Client, script: Callable[[Peer], None]
) -> None:
    with ask(session, start(script).url, max_bytes=13) as exchange:
        assert exchange.body() == b"one two three"
    with ask(session, start(script).url, max_bytes=12) as exchange:
        with pytest.raises(TooLarge) as caught:
            exchange.body()
        assert (caught.value.sent, caught.value.reason) == (True, "too_large")


def test_an_endless_body_is_cut_at_the_limit(start: Start, session: Client) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(OK + b"\r\n")
        with contextlib.suppress(OSError):
            while True:
                peer.send(b"x" * 1000)

    provider = start(script)
    with ask(session, provider.url) as exchange:
        with pytest.raises(TooLarge):
            exchange.body()
        assert provider.gone.wait(GENEROUS)


# Closing


@pytest.mark.parametrize("stage", STAGES)
def test_close_ends_the_connection_in_every_phase(
    start: Start,
    session: Client,
    tls: ssl.SSLContext | None,
    stage: Callable[[Peer], None],
) -> None:
    silent = threading.Event()

    def script(peer: Peer) -> None:
        stage(peer)
        silent.set()

    provider = start(script, tls)
    exchange = ask(session, provider.url)
    bring_to(stage, exchange)
    assert silent.wait(GENEROUS)
    exchange.close()
    assert_cut(provider)
    exchange.close()
    with pytest.raises(Broken) as caught:
        exchange.chunk(GENEROUS)
    assert caught.value.sent


def test_close_ends_a_reader_that_is_far_ahead_of_its_consumer(
    start: Start, session: Client, tls: ssl.SSLContext | None
) -> None:
    stuck = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(OK + b"\r\n")
        peer.sock.settimeout(2 * SHORT)
        with contextlib.suppress(TimeoutError):
            while True:
                peer.send(b"x" * 1000)
        stuck.set()
        peer.sock.settimeout(None)

    provider = start(script, tls)
    exchange = ask(session, provider.url, max_bytes=10**12)
    assert stuck.wait(GENEROUS)
    exchange.close()
    assert_cut(provider)
    # A thread ends too, since it does not wait for room.
    eventually(lambda: not readers())


def test_close_ends_a_request_that_the_provider_does_not_read(
    start: Start, session: Client, tls: ssl.SSLContext | None
) -> None:
    begun = threading.Event()
    closed = threading.Event()

    def script(peer: Peer) -> None:
        assert peer.sock.recv(100)
        begun.set()
        assert closed.wait(GENEROUS)

    provider = start(script, tls)
    exchange = ask(session, provider.url, body=b"x" * 30_000_000)
    assert begun.wait(GENEROUS)
    assert exchange.head(SHORT) is None
    exchange.close()
    assert_cut()
    closed.set()
    assert_cut(provider)


@closed_by_reference
def test_close_ends_a_tls_handshake(start: Start, session: Client) -> None:
    greeted = threading.Event()

    def script(peer: Peer) -> None:
        assert peer.sock.recv(1)
        greeted.set()

    provider = start(script)
    exchange = ask(session, provider.url.replace("http", "https"))
    assert greeted.wait(GENEROUS)
    exchange.close()
    assert_cut(provider)
    with pytest.raises(Broken) as caught:
        exchange.head(GENEROUS)
    assert not caught.value.sent


@pytest.fixture
def full() -> Iterator[str]:
    """The address of a listener whose queue is full, so that connecting to it hangs."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/chat"


def test_nothing_is_sent_after_the_deadline(start: Start, session: Client) -> None:
    requests: list[bytes] = []

    def script(peer: Peer) -> None:
        while request := peer.request():
            requests.append(request.partition(b"\r\n\r\n")[2])
            peer.answer(b"{}")

    provider = start(script)
    with ask(session, provider.url) as exchange:
        assert exchange.body() == b"{}"
    with ask(session, provider.url, lasts=0.0) as exchange:
        with pytest.raises(TimedOut) as late:
            exchange.head(GENEROUS)
        assert (late.value.reason, late.value.sent) == ("too_slow", False)
    eventually(lambda: not readers())
    assert requests == [b'{"stream": true}']


def test_nothing_is_sent_after_a_close(
    start: Start, session: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = threading.Event()
    look_up = socket.getaddrinfo

    def slow(*args: Any, **options: Any) -> Any:
        assert found.wait(GENEROUS)
        return look_up(*args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    asked = threading.Event()

    def script(peer: Peer) -> None:
        if peer.request():
            asked.set()

    exchange = ask(session, start(script).url)
    assert exchange.head(SHORT) is None
    exchange.close()
    found.set()
    eventually(lambda: not readers())
    assert not asked.wait(SHORT)
    with pytest.raises(Broken) as caught:
        exchange.head(GENEROUS)
    assert not caught.value.sent


def test_a_silent_address_leaves_time_for_the_next(
    start: Start, session: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = start(with_length)
    with deaf(provider.port) as silent:
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, provider.port))
            for host in (silent, "127.0.0.1")
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        with ask(session, provider.url, address_timeout=0.5) as exchange:
            assert exchange.body() == b"one two three"


@contextlib.contextmanager
def deaf(port: int) -> Iterator[str]:
    """An address of this machine that takes no more connections at this port, and refuses none."""
    host = "127.0.0.9"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex((host, port))
        yield host


@closed_by_reference
def test_close_ends_connecting(session: Client, full: str) -> None:
    exchange = ask(session, full)
    assert exchange.head(SHORT) is None
    exchange.close()
    assert_cut()


@pytest.mark.wall_time
@closed_by_reference
def test_a_connection_that_takes_too_long_is_unreachable(session: Client, full: str) -> None:
    began = time.monotonic()
    with ask(session, full, connect_timeout=2 * SHORT, read_timeout=SHORT / 2) as exchange:
        with pytest.raises(Unreachable) as caught:
            exchange.head(GENEROUS)
        assert caught.value.reason == "too_slow"
    # By the first limit and not by the second.
    assert time.monotonic() - began > SHORT


@closed_by_reference
def test_the_deadline_holds_while_connecting(session: Client, full: str) -> None:
    with ask(session, full, lasts=SHORT) as exchange:
        with pytest.raises(TimedOut) as caught:
            exchange.body()
        assert not caught.value.sent


@closed_by_reference
def test_a_tls_handshake_that_takes_too_long_is_unreachable(start: Start, session: Client) -> None:
    provider = start(lambda peer: None)
    url = provider.url.replace("http", "https")
    with ask(session, url, connect_timeout=2 * SHORT) as exchange:
        with pytest.raises(Unreachable):
            exchange.head(GENEROUS)
        assert provider.gone.wait(GENEROUS)


@pytest.mark.skipif(not CAN_INTERRUPT, reason="a look-up in a plain thread knows no limit")
def test_a_hanging_name_lookup_is_unreachable_and_connects_no_more(
    start: Start, session: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = threading.Event()
    look_up = socket.getaddrinfo

    def slow(*args: Any, **options: Any) -> Any:
        assert found.wait(GENEROUS)
        return look_up(*args, **options)

    provider = start(with_length)
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with ask(session, provider.url, connect_timeout=SHORT) as exchange, pytest.raises(Unreachable):
        exchange.head(GENEROUS)
    with ask(session, provider.url) as exchange:
        assert exchange.head(SHORT) is None
    found.set()
    assert_cut()
    assert provider.connections == 0


def consume(exchange: Exchange, errors: list[ExchangeError]) -> None:
    try:
        exchange.body()
    except ExchangeError as error:
        errors.append(error)


def test_close_from_elsewhere_wakes_the_consumer(start: Start, session: Client) -> None:
    provider = start(between_chunks)
    for _ in range(50):
        errors: list[ExchangeError] = []
        exchange = ask(session, provider.url)
        assert exchange.chunk(GENEROUS) == b"one"
        consumer = threading.Thread(target=consume, args=(exchange, errors))
        consumer.start()
        exchange.close()
        consumer.join(GENEROUS)
        assert [type(error) for error in errors] == [Broken]


# An answer in one piece, which its consumer waits for in one go


@pytest.mark.parametrize("stage", STAGES)
def test_silence_ends_the_wait_for_a_whole_answer(
    start: Start, session: Client, stage: Callable[[Peer], None]
) -> None:
    provider = start(stage)
    with ask(session, provider.url, read_timeout=SHORT) as exchange:
        with pytest.raises(TimedOut) as caught:
            exchange.body()
        assert caught.value.sent
    assert provider.gone.wait(GENEROUS)


@pytest.mark.parametrize("stage", STAGES)
def test_close_from_elsewhere_wakes_a_consumer_of_a_whole_answer(
    start: Start,
    session: Client,
    tls: ssl.SSLContext | None,
    stage: Callable[[Peer], None],
) -> None:
    silent = threading.Event()

    def script(peer: Peer) -> None:
        stage(peer)
        silent.set()

    provider = start(script, tls)
    exchange = ask(session, provider.url)
    errors: list[ExchangeError] = []
    consumer = threading.Thread(target=consume, args=(exchange, errors), daemon=True)
    consumer.start()
    assert silent.wait(GENEROUS)
    exchange.close()
    consumer.join(GENEROUS)
    assert [type(error) for error in errors] == [Broken]
    assert_cut(provider)


@closed_by_reference
def test_close_from_elsewhere_ends_connecting(session: Client, full: str) -> None:
    exchange = ask(session, full)
    errors: list[ExchangeError] = []
    consumer = threading.Thread(target=consume, args=(exchange, errors), daemon=True)
    consumer.start()
    time.sleep(SHORT)
    exchange.close()
    consumer.join(GENEROUS)
    assert [(type(error), error.sent) for error in errors] == [(Broken, False)]


@pytest.mark.skipif(not CAN_INTERRUPT, reason="a look-up in a plain thread knows no limit")
def test_a_hanging_name_lookup_is_unreachable(
    session: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found.wait(GENEROUS) and [])
    refused("http://model.test/", session, connect_timeout=SHORT)
    exchange = ask(session, "http://model.test/")
    errors: list[ExchangeError] = []
    consumer = threading.Thread(target=consume, args=(exchange, errors), daemon=True)
    consumer.start()
    exchange.close()
    consumer.join(GENEROUS)
    assert [(type(error), error.sent) for error in errors] == [(Broken, False)]
    found.set()


# Connections kept and dropped


def keep_answering(peer: Peer) -> None:
    while request := peer.request():
        peer.answer(request.partition(b"\r\n\r\n")[2])


def test_a_connection_is_reused_after_a_full_read(
    start: Start, session: Client, tls: ssl.SSLContext | None
) -> None:
    provider = start(keep_answering, tls)
    for i in range(3):
        with ask(session, provider.url, body=b"%d" % i) as exchange:
            assert everything(exchange) == b"%d" % i
    assert provider.connections == 1


def test_a_cut_connection_is_not_reused(
    start: Start, session: Client, tls: ssl.SSLContext | None
) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(CHUNKED)
        peer.chunk(b"one")
        if provider.connections == 2:
            peer.chunk(b"")

    provider = start(script, tls)
    with ask(session, provider.url) as exchange:
        assert exchange.chunk(GENEROUS) == b"one"
    with ask(session, provider.url) as exchange:
        assert exchange.body() == b"one"
    assert provider.connections == 2


def test_closing_late_does_not_cut_the_next_exchange_on_the_same_connection(
    start: Start, session: Client, tls: ssl.SSLContext | None
) -> None:
    asked = threading.Semaphore(0)
    closed = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.answer(b"first")
        peer.request()
        asked.release()
        assert closed.wait(GENEROUS)
        peer.answer(b"second")

    provider = start(script, tls)
    unclosed = ask(session, provider.url)
    assert unclosed.body() == b"first"
    with ask(session, provider.url) as exchange:
        assert asked.acquire(timeout=GENEROUS)
        unclosed.close()
        closed.set()
        assert exchange.body() == b"second"
    assert provider.connections == 1


def test_a_connection_that_the_provider_has_closed_is_replaced(
    start: Start, session: Client, tls: ssl.SSLContext | None
) -> None:
    closed = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.answer(b"once")
        if provider.connections == 1:
            peer.close()
            closed.set()

    provider = start(script, tls)
    for _ in range(2):
        with ask(session, provider.url) as exchange:
            assert exchange.body() == b"once"
        assert closed.wait(GENEROUS)
    assert provider.connections == 2


def test_a_connection_that_was_idle_for_long_is_replaced(
    start: Start, session: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_IDLE_SECONDS", 0.0)
    provider = start(keep_answering)
    for _ in range(2):
        with ask(session, provider.url) as exchange:
            assert exchange.body() == b'{"stream": true}'
    assert provider.connections == 2


def test_a_connection_is_dropped_before_a_server_drops_it(
    start: Start, session: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several common ones do so after five seconds."""
    provider = start(keep_answering)
    monkeypatch.setattr(client, "MAX_IDLE_SECONDS", IDLE_SECONDS)
    for seconds_later in (0.0, 4.9):
        clock = SimpleNamespace(monotonic=lambda ahead=seconds_later: time.monotonic() + ahead)
        monkeypatch.setattr(client, "time", clock)
        with ask(session, provider.url) as exchange:
            assert exchange.body() == b'{"stream": true}'
    assert provider.connections == 2


# Unreachable providers


def refused(url: str, session: Client, **options: Any) -> Unreachable:
    """The refusal of an exchange, which must have been one before anything was sent."""
    with ask(session, url, **options) as exchange:
        with pytest.raises(Unreachable) as caught:
            exchange.head(GENEROUS)
        assert not caught.value.sent
        return caught.value


def test_a_closed_port_is_unreachable(session: Client) -> None:
    with nobody() as port:
        error = refused(f"http://127.0.0.1:{port}/", session)
    assert ("ConnectionRefusedError" in str(error), error.reason) == (True, "unreachable")


def test_an_unknown_authority_is_unreachable(start: Start, server_tls: ssl.SSLContext) -> None:
    provider = start(with_length, server_tls)
    with contextlib.closing(Client()) as session:
        assert "SSLCertVerificationError" in str(refused(provider.url, session))


def test_a_certificate_for_another_name_is_unreachable(
    start: Start, session: Client, authority: Authority
) -> None:
    provider = start(with_length, authority.server(x509.DNSName("provider.test")))
    assert "SSLCertVerificationError" in str(refused(provider.url, session))


def test_a_provider_without_tls_is_unreachable_by_https(start: Start, session: Client) -> None:
    def script(peer: Peer) -> None:
        peer.sock.recv(1)
        peer.send(OK)

    assert "SSL" in str(refused(start(script).url.replace("http", "https"), session))


def test_the_first_address_that_answers_is_used(
    start: Start, session: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = start(with_length)
    look_up = socket.getaddrinfo

    def two(*args: Any, **options: Any) -> Any:
        (found,) = look_up(*args, **options)
        return [(*found[:4], ("127.0.0.1", dead)), found]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    with nobody() as dead, ask(session, provider.url) as exchange:
        assert exchange.body() == b"one two three"


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://name:hidden-word@127.0.0.1:{port}/hidden-path?key=hidden-key", {}),
        ("http://127.0.0.1:{port}/", {"Authorization": "Bearer hidden-key\n"}),
        ("http://127.0.0.1:{port}/", {"Authorization": "hidden-kěy"}),
        ("ftp://name:hidden-word@127.0.0.1/", {}),
        ("http://name:hidden-word@[::1/", {}),
        ("http://hidden..name/", {}),
    ],
)
def test_a_refusal_names_neither_address_nor_headers(
    session: Client, url: str, headers: dict[str, str]
) -> None:
    with nobody() as port:
        error = refused(url.format(port=port), session, headers=headers)
    assert "hidden" not in repr(error)
    assert "127.0.0.1" not in repr(error)
    assert error.__cause__ is None
    assert error.__context__ is None


# The same with greenlets


@pytest.mark.skipif(socket.socket.__module__ != "socket", reason="runs under gevent already")
def test_all_of_this_holds_under_gevent() -> None:
    patched = (
        "import gevent.monkey; gevent.monkey.patch_all(); "
        "import sys, pytest; raise SystemExit(pytest.main(sys.argv[1:]))"
    )
    # Nothing of the project's own test set-up: neither Django nor a database is needed here.
    options = ["-q", "-W", "error", "--noconftest", "-c", os.devnull, "--rootdir", "."]
    options += ["-o", "markers=wall_time"]
    plugins = ["-p", "no:cacheprovider", "-p", "no:django", "-p", "no:schemathesis"]
    retries = str(Path(__file__).with_name("test_retries.py"))
    done = subprocess.run(
        [sys.executable, "-c", patched, *options, *plugins, __file__, retries],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 skipped" in done.stdout
