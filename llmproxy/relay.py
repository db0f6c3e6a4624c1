"""Relays a call: one request to the provider, its answer to the caller, and the settlement before the last event.

No database connection is held while waiting. Every call ends in exactly one settlement, which says how it ended.
"""

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from json import dumps
from typing import Any

from django.conf import settings

from config.api.handlers import openai_error
from config.api.problems import InternalError, Problem, ServiceUnavailable
from config.middleware.request_id import current as request_id
from llmproxy import call_watch
from llmproxy.calls import Call, End
from llmproxy.providers import provider
from llmproxy.providers.protocol import (
    KEEP_ALIVE,
    Piece,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
)
from llmproxy.providers.reading import usage_of
from llmproxy.sse import EventParser, EventTooLarge
from llmproxy.upstream.exchange import (
    Broken,
    Exchange,
    ExchangeError,
    Limits,
    TimedOut,
    TooLarge,
    Unreachable,
)
from llmproxy.upstream.provider_session import ProviderSession

log = logging.getLogger(__name__)

BLANK_LINES = (b"\n\n", b"\r\n\r\n", b"\r\r")
DONE = b"data: [DONE]\n\n"
OK = 200
# The first bytes of a page or an object that some servers send in place of a stream, whatever its type says.
NO_EVENTS = (b"<", b"{")
DRAIN_SECONDS = 0.2
# The longest waits for the usage after an answer's end, and for the provider's last event after both.
USAGE_SECONDS = 2.0
LAST_WORD_SECONDS = 1.5
# The limits to reading a refusal: seconds and bytes.
REFUSAL_SECONDS = 2.0
MAX_REFUSAL = 64 * 1024
# The number of keep-alives for which a caller waits for a settlement while the database is unavailable.
SETTLE_PATIENCE = 2
# The size above which an answer, streamed or whole, is a provider's failure.
MAX_ANSWER = 64 * 1024 * 1024

_session = ProviderSession(ca_bundle=settings.LLM_CA_BUNDLE or None)


def complete(call: Call) -> dict[str, Any]:
    """Returns the whole answer of a call and settles it. A provider's problem is raised after settling too."""
    exchange = _open(call)
    try:
        exchange.head(settings.LLM_MAX_SECONDS)
        _check_head(call, exchange)
        call.heard()
        answer, call.reported, call.size = provider().answer(exchange.body())
    except BaseException as error:  # noqa: BLE001 - whatever it is, the call has to be settled
        raise _failed(call, error) from None
    finally:
        call_watch.forget(call)
        exchange.close()
    if not call.settle(End.DONE) and not call.wait_settled(
        SETTLE_PATIENCE * settings.LLM_KEEPALIVE_SECONDS
    ):
        raise ServiceUnavailable
    if (name := _called(call)) is not None:
        answer["model"] = name
    if call.reported is None:
        answer["usage"] = usage_of(call.bill())
    return answer


class Stream:
    """The answer of a call as server-sent events for a WSGI server: iterate, and close at any point.

    Made by :func:`stream`, which has already waited one keep-alive interval for the first byte.
    """

    def __init__(self, call: Call, exchange: Exchange, first: bytes | None) -> None:
        self._call = call
        self._exchange = exchange
        self._parser = EventParser()
        self._translator = provider().translator(call.chat, called=_called(call))
        self._over = False
        # The problem that ended the stream in place of the rest.
        self.failure: Problem | None = None
        # The end of the wait for usage and last event, once the answer has ended.
        self._end_by: float | None = None
        self._spoke = time.monotonic()
        # Reading a setting is a look-up, too slow for each chunk.
        self._patience = settings.LLM_KEEPALIVE_SECONDS
        self._parts = self._relay(first)

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def __next__(self) -> bytes:
        return next(self._parts)

    def close(self) -> None:
        """Ends the call: the server calls this at the end of the answer, or when the client has disconnected."""
        self._hear_usage()
        if self._over:
            # The end of the body is read, so that the connection can be used again.
            with suppress(ExchangeError):
                self._exchange.chunk(DRAIN_SECONDS)
        self._exchange.close()
        call_watch.forget(self._call)
        self._parts.close()
        # Not reached where the answer ended: settled once is settled.
        self._call.settle(End.CLIENT_GONE)

    def _hear_usage(self) -> None:
        """Waits for the usage where a client left after the answer's end: it tells output that was not delivered."""
        until = time.monotonic() + USAGE_SECONDS
        with suppress(ExchangeError, EventTooLarge):
            while self._call.awaits_usage() and not self._over:
                chunk = self._exchange.chunk(max(0.0, until - time.monotonic()))
                if chunk is None or self._read(chunk, bytearray()) is not None:
                    return

    def _relay(self, first: bytes | None) -> Generator[bytes]:
        try:
            if first is None:
                yield KEEP_ALIVE
            chunk = first
            while not self._over:
                if chunk is None:
                    chunk = self._next_chunk()
                if chunk is None:
                    self._spoke = time.monotonic()
                    yield KEEP_ALIVE
                    continue
                out = bytearray()
                failure = self._read(chunk, out)
                chunk = None
                if self._over or failure is not None:
                    yield from self._last_words(out, failure)
                elif out or self._is_silent():
                    self._spoke = time.monotonic()
                    # An empty piece: the provider sent something that is not for the caller.
                    yield bytes(out) or KEEP_ALIVE
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the headers are out: only the stream can tell it
            # Also where this process has to end at once: the event is the last.
            self.failure = _failed(self._call, error)
            yield stream_error(self.failure)

    def _is_silent(self) -> bool:
        return time.monotonic() - self._spoke >= self._patience

    def _has_said_all(self) -> bool:
        return self._end_by is not None and time.monotonic() >= self._end_by

    def _next_chunk(self) -> bytes | None:
        """The next bytes, none at the end, None after a silence. Reads the head first, which may be a refusal."""
        if not self._call.began:
            if self._exchange.head(self._patience) is None:
                return None
            _check_head(self._call, self._exchange)
        if self._end_by is None:
            return self._exchange.chunk(self._patience)
        try:
            chunk = self._exchange.chunk(
                max(0.0, min(self._patience, self._end_by - time.monotonic()))
            )
        except ExchangeError:
            # A failure after the answer's end costs nobody the answer, unless this side cut it.
            if self._call.stopped is not None or self._call.disconnected:
                raise
            return b""
        # A provider that neither closes nor sends a last event has ended as well.
        return b"" if chunk is None and self._has_said_all() else chunk

    def _last_words(self, out: bytearray, failure: Problem | None) -> Iterator[bytes]:
        """The bytes before the end, then the end of a settled answer; raises a failure instead."""
        settled = not self._over or self._call.settle(End.DONE)
        if out and (failure is not None or not settled):
            # The bytes before the failure are good, and do not wait for the ledger.
            yield bytes(out)
            out.clear()
        if failure is not None:
            raise failure
        if not settled:
            yield from self._until_settled()
        if self._call.chat.include_usage:
            out += self._translator.usage_chunk(self._call.bill())
        yield bytes(out) + DONE

    def _read(self, chunk: bytes, out: bytearray) -> Problem | None:
        """Adds to ``out`` what the caller gets of these bytes; returns a failure that the provider reports."""
        call = self._call
        if chunk and call.first_byte_at is None:
            call.heard()
        for event in self._parser.feed(chunk) if chunk else self._parser.finish():
            piece = self._translator.piece(event)
            if piece.failed is not None and (chunk or not call.finished):
                return piece.failed
            had_finished = call.finished
            self._count(piece)
            if piece.ended:
                self._over = True
                return None
            out += _whole(piece.forward)
            # A large report that comes with the end must not cost the caller a whole answer.
            goes_on = piece.size > 0 if had_finished else not call.finished
            if goes_on and call.is_runaway():
                log.warning("provider_past_its_limit")
                return ProviderError()
        if not chunk:
            # The end of the connection without the end of the answer is a truncated answer.
            if not call.finished:
                return ProviderError()
            self._over = True
        return None

    def _until_settled(self) -> Iterator[bytes]:
        for _ in range(SETTLE_PATIENCE):
            if self._call.wait_settled(self._patience):
                return
            yield KEEP_ALIVE
        raise ServiceUnavailable

    def _count(self, piece: Piece) -> None:
        call = self._call
        was_reported = call.is_reported
        if piece.reported is not None:
            call.reported, call.goes_on = piece.reported, False
        elif piece.size:
            call.goes_on = True
        if piece.prompt is not None:
            call.prompt = piece.prompt
        if piece.size:
            call.deltas += 1
            call.size += piece.size
        call.finished = call.finished or piece.finished
        if call.finished and (
            self._end_by is None or piece.size or call.is_reported > was_reported
        ):
            # With the last report another wait begins.
            wait = LAST_WORD_SECONDS if call.is_reported else USAGE_SECONDS
            self._end_by = time.monotonic() + wait


def stream(call: Call) -> Stream:
    """Starts a streamed answer. A failure within one keep-alive interval is settled and raised."""
    exchange = _open(call)
    try:
        first = _first_bytes(call, exchange)
        return Stream(call, exchange, first)
    except BaseException as error:  # noqa: BLE001 - as above
        exchange.close()
        call_watch.forget(call)
        raise _failed(call, error) from None


def stream_error(problem: Problem) -> bytes:
    """The event that ends a stream in place of ``[DONE]``, as OpenAI's SDKs and a shell read it."""
    error = {**openai_error(problem), "status": problem.status, "request_id": request_id()}
    return b"data: " + dumps({"error": error}).encode() + b"\n\n"


def _whole(event: bytes) -> bytes:
    """An event with the blank line that ends it; the last one of a stream may lack it."""
    return event if not event or event.endswith(BLANK_LINES) else event + b"\n\n"


def _first_bytes(call: Call, exchange: Exchange) -> bytes | None:
    """The provider's first bytes, None if none come within one keep-alive interval."""
    until = time.monotonic() + settings.LLM_KEEPALIVE_SECONDS
    if exchange.head(settings.LLM_KEEPALIVE_SECONDS) is None:
        return None
    _check_head(call, exchange)
    chunk = exchange.chunk(max(0.0, until - time.monotonic()))
    if chunk == b"" or (chunk or b"").lstrip().startswith(NO_EVENTS):
        raise ProviderError
    return chunk


def _check_head(call: Call, exchange: Exchange) -> None:
    """Marks the call as begun, or raises the provider's refusal."""
    head = exchange.head(0)
    if head is None:
        raise TimedOut("no answer", sent=True)
    if head.status != OK:
        raise provider().refusal(head.status, head.headers, _words_of(exchange))
    call.began = True


def _words_of(exchange: Exchange) -> bytes:
    """The body of a refusal, as far as it comes soon: the status says enough."""
    until, words = time.monotonic() + REFUSAL_SECONDS, b""
    with suppress(ExchangeError):
        while len(words) <= MAX_REFUSAL and (
            more := exchange.chunk(max(0.0, until - time.monotonic()))
        ):
            words += more
    return words


def _called(call: Call) -> str | None:
    """The name of the model in the answer, where operators gave it a name other than the provider's."""
    return call.model.name if call.model.name != call.model.provider_name else None


def _open(call: Call) -> Exchange:
    """Sends the call to the provider and begins to watch it."""
    try:
        outgoing = provider().outgoing(
            call.chat,
            model=call.model.provider_name,
            output_limit=call.reservation.output_limit,
        )
        exchange = Exchange(
            _session,
            url=outgoing.url,
            headers=outgoing.headers,
            body=outgoing.body,
            limits=_limits(streamed=call.chat.stream),
        )
        call_watch.register(call, exchange)
    except Exception as error:  # noqa: BLE001 - whatever it is, the call has to be settled
        raise _failed(call, error) from None
    return exchange


def _limits(*, streamed: bool) -> Limits:
    now, read = time.monotonic(), settings.LLM_READ_TIMEOUT
    # An answer in one piece comes when it is whole, which takes as long as it takes to make it.
    first_byte = settings.LLM_FIRST_BYTE_TIMEOUT or read if streamed else settings.LLM_MAX_SECONDS
    # A caller of a stream learns of a failure by its status for only so long.
    patience = settings.LLM_KEEPALIVE_SECONDS if streamed else read
    return Limits(
        connect_timeout=settings.LLM_CONNECT_TIMEOUT,
        first_byte_timeout=first_byte,
        read_timeout=read,
        deadline=now + settings.LLM_MAX_SECONDS,
        max_bytes=MAX_ANSWER,
        retry_until=now + patience,
    )


def _failed(call: Call, error: BaseException) -> Problem:
    """Settles a failed call and returns the problem for its caller."""
    if call.stopped is not None:
        call.settle(End.STOPPED)
        return call.stopped
    if call.disconnected:
        call.settle(End.CLIENT_GONE)
        return ServiceUnavailable()
    if not isinstance(error, Exception):
        call.settle(End.CRASHED)
        return ServiceUnavailable()
    # The provider may charge for work, whatever became of the answer.
    call.began = call.began or (isinstance(error, TimedOut) and error.sent)
    problem = _problem(error)
    end = End.TIMEOUT if isinstance(problem, ProviderTimeout) else End.PROVIDER_FAILED
    if isinstance(problem, InternalError):
        log.error("relay_failed", exc_info=error)
        end = End.CRASHED
    call.settle(end)
    return problem


def _problem(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case TimedOut():
            return ProviderTimeout()
        case Unreachable():
            return ProviderUnavailable()
        case Broken() | TooLarge() | EventTooLarge():
            return ProviderError()
    return InternalError()
