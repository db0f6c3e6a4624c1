"""Reads the answer to one attempt: its head, and the events of a stream."""

import logging
import time
from contextlib import suppress

from config.api.problems import Problem
from config.http.errors import ExchangeError, TimedOut
from config.http.exchange import Exchange
from llmproxy.calls.admission import Admission
from llmproxy.calls.attempt import Attempt
from llmproxy.calls.meter import State
from llmproxy.calls.stop import Stop
from llmproxy.dialects.protocol import KEEP_ALIVE, Piece, ProviderError, TokenUsage
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


class StreamReader:
    """The events of one attempt, and their meaning for the caller; its meter counts them."""

    def __init__(self, admission: Admission, attempt: Attempt, stop: Stop) -> None:
        assert attempt.exchange is not None
        self._stop = stop
        self._attempt = attempt
        self._exchange = attempt.exchange
        self._meter = attempt.meter
        self._limit = admission.reservation.output_limit
        self._parser = EventParser()
        self._translator = attempt.target.codec(admission.request.surface).translator(
            admission.request,
            target=attempt.target,
            called=attempt.own_model_name(admission.model),
        )
        self.is_over = False
        # A failure behind bytes that came with it.
        self._failure: Problem | None = None
        # The end of the wait for usage and last event, once the answer has ended.
        self._end_by: float | None = None

    def receive(self, seconds: float) -> bytes:
        """The caller's part of what comes within so many seconds, b"" for nothing.

        Raises the failure that the provider reports, or an ``ExchangeError``. After the end of an answer a failure
        leaves it whole, unless this side cut it.
        """
        if self._failure is not None:
            raise self._failure
        chunk = self._next_chunk(seconds)
        if chunk is None:
            return b""
        out = bytearray()
        failure = self._read(chunk, out)
        if failure is not None and not self._meter.has_output:
            if chunk:
                # An error in place of an answer is a refusal, whatever the status.
                self._meter.state = State.ENDED
            raise failure
        self._failure = failure
        return bytes(out)

    def finish(self) -> None:
        """Reads on after the caller has gone, where only the usage is missing, and to the end of a whole body."""
        until = time.monotonic() + USAGE_SECONDS
        with suppress(ExchangeError, EventTooLarge, Problem):
            while (
                self._meter.awaits_usage
                and not self.is_over
                and (left := until - time.monotonic()) > 0
            ):
                self.receive(left)
        if self.is_over:
            # A connection whose body was read to its end can be used again.
            with suppress(ExchangeError):
                self._exchange.chunk(DRAIN_SECONDS)

    def ending(self, charged: TokenUsage) -> bytes:
        return self._translator.ending(charged)

    def failure(self, problem: Problem) -> bytes:
        return self._translator.failure(problem)

    def _next_chunk(self, seconds: float) -> bytes | None:
        """The next bytes, b"" at the end, None after a silence. Reads the head first, which may be a refusal."""
        if not self._meter.has_begun:
            until = time.monotonic() + seconds
            if self._exchange.head(seconds) is None:
                return None
            check_head(self._attempt)
            seconds = max(0.0, until - time.monotonic())
        if self._end_by is None:
            return self._exchange.chunk(seconds)
        left = max(0.0, self._end_by - time.monotonic())
        try:
            chunk = self._exchange.chunk(min(seconds, left))
        except ExchangeError:
            if self._stop:
                raise
            return b""
        # The stream ends here too if the provider neither closes it nor sends a last event.
        return b"" if chunk is None and time.monotonic() >= self._end_by else chunk

    def _read(self, chunk: bytes, out: bytearray) -> Problem | None:
        """Adds the caller's part of these bytes to ``out``; returns a failure that the provider reports."""
        meter = self._meter
        if chunk and meter.first_byte_at is None:
            meter.mark_first_byte()
            if chunk.lstrip().startswith(NO_EVENTS):
                return ProviderError()
        for event in self._parser.feed(chunk) if chunk else self._parser.finish():
            piece = self._translator.piece(event)
            if piece.failed is not None and (chunk or not meter.is_finished):
                # A failure may report what the answer before it has used.
                if meter.has_output:
                    self._count(piece)
                self._attempt.failure_report = piece.reported
                return piece.failed
            had_finished = meter.is_finished
            self._count(piece)
            if piece.ended:
                self.is_over = True
                return None
            self._forward(piece.forward, out)
            # A large report at the end is no reason to refuse a whole answer.
            continues = piece.size > 0 if had_finished else not meter.is_finished
            if continues and meter.is_runaway(limit=self._limit):
                log.warning("provider_past_its_limit")
                return ProviderError()
        if not chunk:
            # The connection ended before the answer did.
            if not meter.is_finished:
                return ProviderError()
            self.is_over = True
        return None

    def _forward(self, event: bytes, out: bytearray) -> None:
        """Adds an event with the blank line that ends it, which the last one of a stream may lack."""
        if not event or event == KEEP_ALIVE:
            # A comment is a line, and no event that ends.
            out += event
            return
        out += event if event.endswith(BLANK_LINES) else event + b"\n\n"
        if self._meter.state is State.ANSWERING:
            self._meter.state = State.DELIVERING

    def _count(self, piece: Piece) -> None:
        meter = self._meter
        was_reported = meter.is_reported
        meter.count(piece)
        if meter.is_finished and (
            self._end_by is None or piece.size or meter.is_reported > was_reported
        ):
            # The last report starts another wait.
            wait = LAST_EVENT_SECONDS if meter.is_reported else USAGE_SECONDS
            self._end_by = time.monotonic() + wait


def check_head(attempt: Attempt) -> None:
    """Marks an attempt as answering, or raises the provider's refusal."""
    exchange = attempt.exchange
    assert exchange is not None
    head = exchange.head(0)
    if head is None:
        raise TimedOut("no answer", sent=True)
    if head.status != OK:
        attempt.meter.state = State.ENDED
        body, key = _refusal_body(exchange), attempt.target.key()
        raise problem_of(head.status, head.headers, body, key=key)
    attempt.meter.state = State.ANSWERING


def _refusal_body(exchange: Exchange) -> bytes:
    """The body of a refusal, or its beginning: the status is enough to translate it."""
    until, body = time.monotonic() + REFUSAL_SECONDS, b""
    with suppress(ExchangeError):
        while len(body) <= MAX_REFUSAL and (
            more := exchange.chunk(max(0.0, until - time.monotonic()))
        ):
            body += more
    return body
