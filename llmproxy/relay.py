"""Relays a call: one request to the provider, its answer to the caller, and the settlement before the last event.

The relay holds no database connection while it waits. Every call ends in exactly one settlement.
"""

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any

from django.conf import settings

from config.api.problems import InternalError, Problem, ServiceUnavailable
from llmproxy import call_watch
from llmproxy.calls import Call, End
from llmproxy.providers.protocol import (
    KEEP_ALIVE,
    Codec,
    Piece,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
)
from llmproxy.providers.refusals import problem_of
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
OK = 200
# The first byte of an HTML page or a JSON object, which some servers send in place of events.
NO_EVENTS = (b"<", b"{")
DRAIN_SECONDS = 0.2
# The longest waits after an answer's end: for the usage, and then for the provider's last event.
USAGE_SECONDS = 2.0
LAST_EVENT_SECONDS = 1.5
# The limits to reading a refusal: seconds and bytes.
REFUSAL_SECONDS = 2.0
MAX_REFUSAL = 64 * 1024
# The number of keep-alives for which a caller waits for a settlement while the database is unavailable.
SETTLE_KEEP_ALIVES = 2
# A larger answer, streamed or whole, is a failure of the provider.
MAX_ANSWER = 64 * 1024 * 1024

_session = ProviderSession(ca_bundle=settings.LLM_CA_BUNDLE or None)


def complete(call: Call) -> dict[str, Any]:
    """Returns the whole answer of a call and settles it. A problem is raised after the settlement too.

    It is read to its end although the client disconnects, unless the watch cuts it.
    """
    exchange = _open(call)
    try:
        exchange.head(settings.LLM_MAX_SECONDS)
        _check_head(call, exchange)
        call.mark_first_byte()
        answer, call.reported, call.size = _codec(call).answer(exchange.body(), target=call.target)
        call.finished = True
    except BaseException as error:  # noqa: BLE001 - every failure has to settle the call
        raise _settle_failure(call, error) from None
    finally:
        call_watch.forget(call)
        exchange.close()
    end = End.CLIENT_GONE if call.disconnected or call.is_disconnected() else End.DONE
    if not call.settle(end) and not call.wait_settled(
        SETTLE_KEEP_ALIVES * settings.LLM_KEEPALIVE_SECONDS
    ):
        raise ServiceUnavailable
    charged = call.charged_usage() if call.reported is None else None
    return _codec(call).completed(answer, called=_own_model_name(call), charged=charged)


class Stream:
    """The answer of a call as server-sent events for a WSGI server: iterate, and close at any point.

    Made by :func:`stream`, which has already waited one keep-alive interval for the first event.
    """

    def __init__(self, call: Call, exchange: Exchange) -> None:
        self._call = call
        self._exchange = exchange
        self._parser = EventParser()
        self._translator = _codec(call).translator(
            call.request, target=call.target, called=_own_model_name(call)
        )
        self._over = False
        # The problem that ended the stream early.
        self.failure: Problem | None = None
        # The end of the wait for usage and last event, once the answer has ended.
        self._end_by: float | None = None
        self._sent_at = time.monotonic()
        # Kept because reading a setting is too slow for each chunk.
        self._keep_alive = settings.LLM_KEEPALIVE_SECONDS
        self._parts = self._relay()
        # The caller's part of the first bytes, and the failure that they end with.
        self._first = bytearray()
        self._failed: Problem | None = None

    def begin(self) -> None:
        """Waits one keep-alive interval for the first event; raises a failure that comes in its place."""
        until = time.monotonic() + self._keep_alive
        if self._exchange.head(self._keep_alive) is None:
            return
        _check_head(self._call, self._exchange)
        while not _has_event(self._first) and not self._over:
            chunk = self._exchange.chunk(max(0.0, until - time.monotonic()))
            if chunk is None:
                return
            is_first = self._call.first_byte_at is None
            if is_first and (not chunk or chunk.lstrip().startswith(NO_EVENTS)):
                raise ProviderError
            self._failed = self._read(chunk, self._first)
            if self._failed is not None and not _has_event(self._first):
                if chunk:
                    # An error in place of an answer is a refusal, whatever the status.
                    self._call.refused, self._call.began = True, False
                raise self._failed
            if time.monotonic() >= until:
                return

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def __next__(self) -> bytes:
        return next(self._parts)

    def close(self) -> None:
        """Ends the call. The server calls this at the end of the answer, or when the client has disconnected."""
        self._await_usage()
        if self._over:
            # A connection whose body was read to its end can be used again.
            with suppress(ExchangeError):
                self._exchange.chunk(DRAIN_SECONDS)
        self._exchange.close()
        call_watch.forget(self._call)
        self._parts.close()
        # Has no effect where the call is settled already.
        self._call.settle(End.CLIENT_GONE)

    def _await_usage(self) -> None:
        """Waits for the usage after a client left at the answer's end: it includes output that was not delivered."""
        until = time.monotonic() + USAGE_SECONDS
        with suppress(ExchangeError, EventTooLarge):
            while self._call.awaits_usage() and not self._over:
                chunk = self._exchange.chunk(max(0.0, until - time.monotonic()))
                if chunk is None or self._read(chunk, bytearray()) is not None:
                    return

    def _relay(self) -> Generator[bytes]:
        try:
            if self._over or self._failed is not None:
                yield from self._end(self._first, self._failed)
            else:
                yield bytes(self._first) or KEEP_ALIVE
            while not self._over:
                chunk = self._next_chunk()
                if chunk is None:
                    self._sent_at = time.monotonic()
                    yield KEEP_ALIVE
                    continue
                out = bytearray()
                failure = self._read(chunk, out)
                if self._over or failure is not None:
                    yield from self._end(out, failure)
                elif out or self._is_silent():
                    self._sent_at = time.monotonic()
                    # Without output the provider sent something that is not for the caller.
                    yield bytes(out) or KEEP_ALIVE
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - after the headers only an event can report a failure
            # Also where this process has to end at once.
            self.failure = _settle_failure(self._call, error)
            yield self._translator.failure(self.failure)

    def _is_silent(self) -> bool:
        return time.monotonic() - self._sent_at >= self._keep_alive

    def _next_chunk(self) -> bytes | None:
        """The next bytes, b"" at the end, None after a silence. Reads the head first, which may be a refusal."""
        if not self._call.began:
            if self._exchange.head(self._keep_alive) is None:
                return None
            _check_head(self._call, self._exchange)
        if self._end_by is None:
            return self._exchange.chunk(self._keep_alive)
        left = max(0.0, self._end_by - time.monotonic())
        try:
            chunk = self._exchange.chunk(min(self._keep_alive, left))
        except ExchangeError:
            # A failure after the end leaves the answer whole, unless this side cut it.
            if self._call.stopped is not None or self._call.disconnected:
                raise
            return b""
        # The stream ends here too if the provider neither closes it nor sends a last event.
        return b"" if chunk is None and time.monotonic() >= self._end_by else chunk

    def _end(self, out: bytearray, failure: Problem | None) -> Iterator[bytes]:
        """Yields the last bytes, settles and ends the answer; raises a failure instead."""
        settled = not self._over or self._call.settle(End.DONE)
        if out and (failure is not None or not settled):
            # The bytes before the failure do not wait for the settlement.
            yield bytes(out)
            out.clear()
        if failure is not None:
            raise failure
        if not settled:
            yield from self._await_settlement()
        yield bytes(out) + self._translator.ending(self._call.charged_usage())

    def _read(self, chunk: bytes, out: bytearray) -> Problem | None:
        """Adds the caller's part of these bytes to ``out``; returns a failure that the provider reports."""
        call = self._call
        if chunk and call.first_byte_at is None:
            call.mark_first_byte()
        for event in self._parser.feed(chunk) if chunk else self._parser.finish():
            piece = self._translator.piece(event)
            if piece.failed is not None and (chunk or not call.finished):
                return piece.failed
            had_finished = call.finished
            self._count(piece)
            if piece.ended:
                self._over = True
                return None
            out += _with_blank_line(piece.forward)
            # A large report at the end is no reason to refuse a whole answer.
            continues = piece.size > 0 if had_finished else not call.finished
            if continues and call.is_runaway():
                log.warning("provider_past_its_limit")
                return ProviderError()
        if not chunk:
            # The connection ended before the answer did.
            if not call.finished:
                return ProviderError()
            self._over = True
        return None

    def _await_settlement(self) -> Iterator[bytes]:
        for _ in range(SETTLE_KEEP_ALIVES):
            if self._call.wait_settled(self._keep_alive):
                return
            yield KEEP_ALIVE
        raise ServiceUnavailable

    def _count(self, piece: Piece) -> None:
        call = self._call
        was_reported = call.is_reported
        if piece.reported is not None:
            call.reported, call.exceeds_report = piece.reported, False
        elif piece.size:
            call.exceeds_report = True
        if piece.prompt is not None:
            call.prompt = piece.prompt
        if piece.size:
            call.deltas += 1
            call.size += piece.size
            call.delta_at = time.monotonic()
        call.finished = call.finished or piece.finished
        if call.finished and (
            self._end_by is None or piece.size or call.is_reported > was_reported
        ):
            # The last report starts another wait.
            wait = LAST_EVENT_SECONDS if call.is_reported else USAGE_SECONDS
            self._end_by = time.monotonic() + wait


def stream(call: Call) -> Stream:
    """Starts a streamed answer. A failure within one keep-alive interval is settled and raised."""
    exchange = _open(call)
    try:
        answer = Stream(call, exchange)
        answer.begin()
    except BaseException as error:  # noqa: BLE001 - every failure has to settle the call
        exchange.close()
        call_watch.forget(call)
        raise _settle_failure(call, error) from None
    return answer


def _with_blank_line(event: bytes) -> bytes:
    """An event with the blank line that ends it, which the last one of a stream may lack."""
    return event if not event or event.endswith(BLANK_LINES) else event + b"\n\n"


def _has_event(out: bytearray) -> bool:
    """Whether there is more than comments for the caller."""
    return bool(out.replace(KEEP_ALIVE, b""))


def _check_head(call: Call, exchange: Exchange) -> None:
    """Marks the call as begun, or raises the provider's refusal."""
    head = exchange.head(0)
    if head is None:
        raise TimedOut("no answer", sent=True)
    if head.status != OK:
        call.refused = True
        body, key = _refusal_body(exchange), call.target.key()
        raise problem_of(head.status, head.headers, body, key=key)
    call.began = True


def _refusal_body(exchange: Exchange) -> bytes:
    """The body of a refusal, or its beginning: the status is enough to translate it."""
    until, body = time.monotonic() + REFUSAL_SECONDS, b""
    with suppress(ExchangeError):
        while len(body) <= MAX_REFUSAL and (
            more := exchange.chunk(max(0.0, until - time.monotonic()))
        ):
            body += more
    return body


def _codec(call: Call) -> Codec:
    return call.target.codec(call.request.surface)


def _own_model_name(call: Call) -> str | None:
    """The model's name in the answer; None where it is the provider's name."""
    return call.model.name if call.model.name != call.target.model else None


def _open(call: Call) -> Exchange:
    """Sends the call to the provider and begins to watch it."""
    try:
        outgoing = _codec(call).outgoing(
            call.request, target=call.target, output_limit=call.reservation.output_limit
        )
        exchange = Exchange(
            _session,
            url=outgoing.url,
            headers=outgoing.headers,
            body=outgoing.body,
            limits=_limits(streamed=call.request.stream),
        )
        call.sent_at = exchange.sent_at
        call_watch.register(call, exchange)
    except Exception as error:  # noqa: BLE001 - every failure has to settle the call
        raise _settle_failure(call, error) from None
    return exchange


def _limits(*, streamed: bool) -> Limits:
    now, read = time.monotonic(), settings.LLM_READ_TIMEOUT
    # The first byte of a one-shot answer comes when the whole answer is made.
    first_byte = settings.LLM_FIRST_BYTE_TIMEOUT or read if streamed else settings.LLM_MAX_SECONDS
    # After the first keep-alive a stream has sent its status, so a retry must begin before.
    retry_seconds = settings.LLM_KEEPALIVE_SECONDS if streamed else read
    return Limits(
        connect_timeout=settings.LLM_CONNECT_TIMEOUT,
        first_byte_timeout=first_byte,
        read_timeout=read,
        deadline=now + settings.LLM_MAX_SECONDS,
        max_bytes=MAX_ANSWER,
        retry_until=now + retry_seconds,
    )


def _settle_failure(call: Call, error: BaseException) -> Problem:
    """Settles a failed call and returns the problem for its caller."""
    if call.stopped is not None:
        call.settle(End.STOPPED)
        return call.stopped
    # Of a whole answer that is read in the background, the provider's failure is the end.
    is_read_on = not call.request.stream and not call.cut and isinstance(error, Exception)
    if call.disconnected and not is_read_on:
        call.settle(End.CLIENT_GONE)
        return ServiceUnavailable()
    if not isinstance(error, Exception) or (call.cut and isinstance(error, Broken)):
        # This process ends.
        call.settle(End.CRASHED)
        return ServiceUnavailable()
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
