"""Relays a call: the request to a provider, its answer to the caller, and the settlement before the last event.

The relay holds no database connection while it waits. Every call ends in exactly one settlement.
"""

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any

from django.conf import settings

from config.api.problems import InternalError, Problem, ServiceUnavailable
from config.http.exchange import (
    Broken,
    Exchange,
    ExchangeError,
    TimedOut,
    TooLarge,
    Unreachable,
)
from llmproxy.calls.admission import Call, End
from llmproxy.calls.failover import Attempts
from llmproxy.dialects.failures import FailedAnswer, is_refusal
from llmproxy.dialects.protocol import (
    KEEP_ALIVE,
    Piece,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
)
from llmproxy.dialects.refusals import problem_of
from llmproxy.dialects.sse import EventParser, EventTooLarge

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


def complete(call: Call) -> dict[str, Any]:
    """Returns the whole answer of a call and settles it. A problem is raised after the settlement too.

    It is read to its end although the client disconnects, unless the watch cuts it.
    """
    attempts = Attempts(call)
    try:
        answer = _whole_answer(call, attempts)
        attempts.note_answer()
    except BaseException as error:  # noqa: BLE001 - every failure has to settle the call
        raise _settle_failure(call, error) from None
    finally:
        attempts.close()
    end = End.CLIENT_GONE if call.disconnected or call.is_disconnected() else End.DONE
    if not call.settle(end) and not call.wait_settled(
        SETTLE_KEEP_ALIVES * settings.LLM_KEEPALIVE_SECONDS
    ):
        raise ServiceUnavailable
    charged = call.charged_usage()
    told = None if charged == call.reported else charged
    return call.codec.completed(answer, called=call.own_model_name, charged=told)


def _whole_answer(call: Call, attempts: Attempts) -> dict[str, Any]:
    """The answer of the first target that gives one."""
    attempts.begin()
    while True:
        try:
            attempts.await_head()
            _check_head(call, attempts.exchange)
            call.mark_first_byte()
            answer = _read_answer(call, attempts.exchange.body())
        except Exception as failure:
            if not attempts.go_on(failure):
                raise
        else:
            call.finished = True
            return answer


def _read_answer(call: Call, body: bytes) -> dict[str, Any]:
    """The answer in a body, with its report and size noted. Raises a problem for anything else."""
    try:
        answer, call.reported, call.size = call.codec.answer(body, target=call.target)
    except FailedAnswer as failed:
        call.reported = failed.reported
        raise failed.problem from None
    except Problem:
        # As in a stream, an error in place of an answer is a refusal, whatever the status.
        if is_refusal(body):
            call.refused, call.began = True, False
        raise
    return answer


class Stream:
    """The answer of a call as server-sent events for a WSGI server: iterate, and close at any point.

    Made by :func:`stream`, which has already waited one keep-alive interval for the first event.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._attempts = Attempts(call)
        self._over = False
        # The problem that ended the stream early.
        self.failure: Problem | None = None
        # The end of the wait for usage and last event, once the answer has ended.
        self._end_by: float | None = None
        self._sent_at = time.monotonic()
        # Kept because reading a setting is too slow for each chunk.
        self._keep_alive = settings.LLM_KEEPALIVE_SECONDS
        self._has_output = False
        self._first = bytearray()
        self._first_failure: Problem | None = None
        self._parts = self._relay()

    def begin(self) -> None:
        """Waits one keep-alive interval for the first event. A failure until then is settled and raised."""
        try:
            self._attempts.begin()
            self._take_up()
            while not (self._has_output or self._over) and (left := self._left()) > 0:
                self._first_failure = self._receive(left, self._first)
        except BaseException as error:  # noqa: BLE001 - every failure has to settle the call
            self._attempts.close()
            raise _settle_failure(self._call, error) from None

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
        self._attempts.close()
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
        out, failure = self._first, self._first_failure
        try:
            while not self._over and failure is None:
                if out or self._left() <= 0:
                    self._sent_at = time.monotonic()
                    # Without output the provider is silent, or sent something that is not for the caller.
                    yield bytes(out) or KEEP_ALIVE
                out = bytearray()
                failure = self._receive(max(0.0, self._left()), out)
            yield from self._end(out, failure)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - after the headers only an event can report a failure
            # Also where this process has to end at once.
            if self._has_output:
                self._attempts.note_failure(error)
            self.failure = _settle_failure(self._call, error)
            yield self._translator.failure(self.failure)

    def _left(self) -> float:
        """The seconds until the next keep-alive."""
        return self._sent_at + self._keep_alive - time.monotonic()

    def _take_up(self) -> None:
        """Reads from the exchange of the current attempt."""
        call = self._call
        self._exchange = self._attempts.exchange
        self._parser = EventParser()
        self._translator = call.codec.translator(
            call.request, target=call.target, called=call.own_model_name
        )

    def _receive(self, seconds: float, out: bytearray) -> Problem | None:
        """Adds what comes within so many seconds to ``out``; returns a failure that the provider reports after it.

        Before any output another target takes over from one that fails.
        """
        try:
            return self._read_next(seconds, out)
        except Exception as error:
            if self._has_output or not self._attempts.go_on(error):
                raise
        self._take_up()
        return None

    def _read_next(self, seconds: float, out: bytearray) -> Problem | None:
        chunk = self._next_chunk(seconds)
        failure = None if chunk is None else self._read(chunk, out)
        if not self._has_output and _has_event(out):
            self._has_output = True
            self._attempts.note_beginning()
        if failure is not None and not self._has_output:
            if chunk:
                # An error in place of an answer is a refusal, whatever the status.
                self._call.refused, self._call.began = True, False
            raise failure
        return failure

    def _next_chunk(self, seconds: float) -> bytes | None:
        """The next bytes, b"" at the end, None after a silence. Reads the head first, which may be a refusal."""
        if not self._call.began:
            until = time.monotonic() + seconds
            if self._exchange.head(seconds) is None:
                return None
            _check_head(self._call, self._exchange)
            seconds = max(0.0, until - time.monotonic())
        if self._end_by is None:
            return self._exchange.chunk(seconds)
        left = max(0.0, self._end_by - time.monotonic())
        try:
            chunk = self._exchange.chunk(min(seconds, left))
        except ExchangeError:
            # A failure after the end leaves the answer whole, unless this side cut it.
            if self._call.stopped is not None or self._call.disconnected:
                raise
            return b""
        # The stream ends here too if the provider neither closes it nor sends a last event.
        return b"" if chunk is None and time.monotonic() >= self._end_by else chunk

    def _end(self, out: bytearray, failure: Problem | None) -> Iterator[bytes]:
        """Yields the last bytes, settles and ends the answer; raises a failure instead."""
        if failure is None:
            self._attempts.note_answer()
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
            if chunk.lstrip().startswith(NO_EVENTS):
                return ProviderError()
        for event in self._parser.feed(chunk) if chunk else self._parser.finish():
            piece = self._translator.piece(event)
            if piece.failed is not None and (chunk or not call.finished):
                if self._has_output or _has_event(out):
                    # A failure may report what the answer before it has used.
                    self._count(piece)
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
    answer = Stream(call)
    answer.begin()
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
