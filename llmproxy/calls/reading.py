"""Reads the answer to one attempt: its head, and the events of a stream."""

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from math import inf

from django.conf import settings

from config.platform.http.errors import ExchangeError, TimedOut, TooLarge, Undecodable
from config.platform.http.exchange import Exchange
from config.platform.problems.problem import Problem
from llmproxy.calls import one_piece
from llmproxy.calls.attempt import MAX_ANSWER, Attempt
from llmproxy.calls.bodies import BYTES_A_TOKEN, TAIL, Body, most_bytes, note_unread
from llmproxy.calls.call import Call
from llmproxy.calls.meter import RUNAWAY_BYTES, State
from llmproxy.calls.pace import Pace
from llmproxy.dialects.failures import is_refusal
from llmproxy.dialects.forms import as_pieces, from_first_sign, is_undecided
from llmproxy.dialects.passing import sources_size
from llmproxy.dialects.protocol import (
    KEEP_ALIVE,
    Piece,
    ProviderError,
    TokenUsage,
    UnreadableAnswer,
)
from llmproxy.dialects.refusals import problem_of
from llmproxy.dialects.sse import Event, EventTooLarge

log = logging.getLogger(__name__)

BLANK_LINES = (b"\n\n", b"\r\n\r\n", b"\r\r")
OK = 200
# The first bytes of what some servers send in place of events: an HTML page, a JSON object.
PAGE, OBJECT = b"<", b"{"
DRAIN_SECONDS = 0.2
# The longest waits after an answer's end: for the usage, and then for the provider's last event.
USAGE_SECONDS = 2.0
LAST_EVENT_SECONDS = 1.5
# The limits to reading a refusal: seconds and bytes.
REFUSAL_SECONDS = 2.0
MAX_REFUSAL = 64 * 1024


class StreamReader:
    """The events of one attempt, and their meaning for the caller; its meter counts them."""

    def __init__(self, call: Call, attempt: Attempt) -> None:
        assert attempt.exchange is not None
        admission = call.admission
        self._call, self._stop = call, call.stop
        self._attempt = attempt
        self._exchange = attempt.exchange
        self._meter = attempt.meter
        self._limit = admission.reservation.output_limit
        # The bytes of text that are within the limit beyond doubt.
        self._most_text = self._limit * RUNAWAY_BYTES
        self._pace = Pace(settings.LLM_STREAM_PACE_MS / 1000)
        self._surface = admission.request.surface
        self._codec = attempt.target.codec(self._surface)
        self._parser = self._codec.parser()
        self._translator = self._codec.translator(
            admission.request,
            target=attempt.target,
            called=attempt.own_model_name(admission.model),
        )
        self.is_over = False
        # A failure behind bytes that came with it.
        self._failure: Problem | None = None
        # An answer that was begun has failed.
        self._is_within = False
        # The end of the wait for usage and last event, once the answer has ended.
        self._end_by: float | None = None
        # The most bytes of the stream, those that have come, of these what it says of its sources, and once it cannot
        # be read, why, and its end.
        self._most = most_bytes(admission)
        self._size = self._sources = 0
        self._unread: UnreadableAnswer | TooLarge | None = None
        self._tail, self._read_until = b"", inf
        # Bytes that came before the form was known (None once it is), and the body of an answer in one piece.
        self._unsaid: bytes | None = b""
        self._body: Body | None = None

    def receive(self, seconds: float) -> bytes:
        """The caller's part of what comes within so many seconds, b"" for nothing.

        Raises the failure that the provider reports, or an ``ExchangeError``. After the end of an answer a failure
        leaves it whole, unless this side cut it.
        """
        if self._unread is not None:
            self._read_on(seconds)
            return b""
        if self._failure is not None:
            raise self._failure
        if self._body is not None:
            return self._read_in_one_piece(seconds, self._body)
        try:
            chunk = self._next_chunk(seconds)
        except Undecodable:
            self._note_unread()
            raise
        if chunk is None:
            return b""
        out = bytearray()
        failure = self._read(chunk, out)
        if isinstance(failure, UnreadableAnswer | TooLarge):
            # Its usage may follow.
            self._unread, self._tail = failure, (self._tail or chunk)[-TAIL:]
            return bytes(out)
        if failure is not None and not self._meter.has_output:
            if chunk and not self._is_within:
                # An error in place of an answer is a refusal, whatever the status.
                self._meter.state = State.ENDED
            raise failure
        self._failure = failure
        return bytes(out)

    def _read_on(self, seconds: float) -> None:
        """Reads a stream that cannot be read to its end, for the usage that stands there; raises its failure then."""
        assert self._unread is not None
        try:
            chunk = self._next_chunk(seconds)
        except ExchangeError:
            if self._stop:
                self._note_unread()
                raise
            chunk = b""
        if chunk is None and time.monotonic() < self._read_until:
            return
        if chunk:
            self._size += len(chunk)
            self._tail = (self._tail + chunk)[-TAIL:]
            return
        self._note_unread()
        raise self._unread

    def _note_unread(self) -> None:
        """Notes a stream that cannot be read, as far as it has come."""
        # A part of an answer may begin like a page.
        is_all = len(self._tail) == self._size
        if is_all and not self._meter.has_output and is_refusal(self._tail):
            self._meter.state = State.ENDED
        else:
            note_unread(self._attempt, self._surface, self._tail)

    def finish(self) -> None:
        """Reads on after the caller has gone, where only the usage is missing, and to the end of a whole body."""
        if self._unread is not None:
            self._note_unread()
        if self._body is not None and not (self.is_over or self._meter.has_output):
            note_unread(self._attempt, self._surface, self._body.tail)
            return
        until = time.monotonic() + USAGE_SECONDS
        with suppress(ExchangeError, Problem):
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
        if self._meter.state is State.DELIVERING:
            return self._pace.chunk(self._exchange, seconds)
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

    def _read(self, chunk: bytes, out: bytearray) -> Problem | TooLarge | None:
        """Adds the caller's part of these bytes to ``out``; returns a failure, of the provider or of this reader."""
        if (failure := self._look_at(chunk)) is not None or self._body is not None:
            return failure
        try:
            events = self._parser.feed(chunk) if chunk else self._parser.finish()
        except EventTooLarge:
            return UnreadableAnswer(goes_on=False)
        coming = iter(events)
        for event in coming:
            failed = self._read_event(event, coming, out, is_end=not chunk)
            if isinstance(failed, UnreadableAnswer):
                # A usage before this event is not of the whole.
                self._tail = chunk[max(0, chunk.find(event.raw)) :]
            if failed is not None or self.is_over:
                return failed
        if not chunk:
            return self._end()
        return None

    def _end(self) -> Problem | None:
        """The end of a stream: a failure where its answer has not ended."""
        if self._codec.ends_by_closing and self._meter.has_output:
            self._meter.state = State.FINISHED
        if not self._meter.is_finished:
            return ProviderError()
        self.is_over = True
        return None

    def _look_at(self, chunk: bytes) -> Problem | TooLarge | None:
        """The failure of bytes that are no events, or too many."""
        self._size += len(chunk)
        if chunk:
            self._meter.mark_first_byte()
        if self._unsaid is not None:
            self._unsaid = said = from_first_sign(self._unsaid + chunk)
            if not is_undecided(said):
                self._unsaid = None
            if said.startswith(PAGE):
                return ProviderError()
            if said.startswith(OBJECT) and not self._codec.streams_objects:
                # An error, or an answer in one piece.
                self._read_until = time.monotonic() + REFUSAL_SECONDS
                self._body = Body(self._call, self._attempt)
                self._body.add(said)
                return None
        if self._size > MAX_ANSWER or self._size - self._sources > self._most:
            return TooLarge(f"the answer is over {self._most} bytes", sent=True)
        return None

    def _read_in_one_piece(self, seconds: float, body: Body) -> bytes:
        """Reads on in an answer in one piece; at its end the events that it would have been."""
        try:
            chunk = self._next_chunk(seconds)
        except ExchangeError:
            if self._stop:
                note_unread(self._attempt, self._surface, body.tail)
                raise
            # A whole answer shows its form.
            chunk = b""
        if chunk:
            body.add(chunk)
        is_left = chunk is None and time.monotonic() >= self._read_until and body.is_object()
        if chunk or (chunk is None and not is_left):
            return b""
        try:
            whole = body.whole()
        except TooLarge:
            note_unread(self._attempt, self._surface, body.tail)
            raise
        target, request = self._attempt.target, self._call.admission.request
        out = bytearray()
        work = partial(as_pieces, self._codec, self._translator, target=target, request=request)
        for piece in one_piece.read(self._call, self._attempt, whole, work):
            if (failure := self._take(piece, iter(()), out, is_end=False)) is not None:
                raise failure
        return bytes(out)

    def _read_event(
        self, event: Event, rest: Iterator[Event], out: bytearray, *, is_end: bool
    ) -> Problem | None:
        meter = self._meter
        if len(event.raw) > BYTES_A_TOKEN and event.data is not None:
            self._sources += sources_size(event.data)
        piece = self._translator.piece(event)
        if piece.is_text and meter.state is State.DELIVERING and meter.report is None:
            # Nearly every event: a text for the caller, and nothing else.
            meter.count_delta(piece.size)
            out += piece.forward
            is_within = meter.deltas <= self._limit and meter.size <= self._most_text
            return None if is_within else self._runaway()
        return self._take(piece, rest, out, is_end=is_end)

    def _take(
        self, piece: Piece, rest: Iterator[Event], out: bytearray, *, is_end: bool
    ) -> Problem | None:
        meter = self._meter
        if piece.failed is not None and not (is_end and meter.is_finished):
            self._count_failure(piece, rest)
            return piece.failed
        had_finished = meter.is_finished
        self._count(piece)
        if piece.ended:
            return self._end()
        self._forward(piece.forward, out)
        # A large report at the end is no reason to refuse a whole answer.
        continues = piece.size > 0 if had_finished else not meter.is_finished
        return self._runaway() if continues else None

    def _runaway(self) -> Problem | None:
        """The failure of a provider that has gone far past the output limit."""
        if not self._meter.is_runaway(limit=self._limit):
            return None
        log.warning("provider_past_its_limit")
        return ProviderError()

    def _count_failure(self, piece: Piece, rest: Iterator[Event]) -> None:
        """A failure may report what the answer before it has used, or the usage may follow."""
        if piece.is_within and piece.reported is None:
            piece.reported = self._late_report(rest)
        made = piece.reported.output if piece.reported is not None else 0
        if piece.is_within or made or self._meter.has_output:
            self._count(piece)
        self._is_within = piece.is_within
        self._attempt.failure_report = piece.reported

    def _late_report(self, rest: Iterator[Event]) -> TokenUsage | None:
        """The usage that comes after the reason for a failure; it is not awaited for long."""
        with suppress(ExchangeError, EventTooLarge):
            for event in chain(rest, self._coming(time.monotonic() + USAGE_SECONDS)):
                piece = self._translator.piece(event)
                if piece.reported is not None or piece.ended or piece.failed is not None:
                    return piece.reported
        return None

    def _coming(self, until: float) -> Iterator[Event]:
        """The events that come by then."""
        while chunk := self._exchange.chunk(max(0.0, until - time.monotonic())):
            yield from self._parser.feed(chunk)
        yield from self._parser.finish()

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
    attempt.meter.state, attempt.has_answered = State.ANSWERING, True


def _refusal_body(exchange: Exchange) -> bytes:
    """The body of a refusal, or its beginning: the status is enough to translate it."""
    until, body = time.monotonic() + REFUSAL_SECONDS, b""
    with suppress(ExchangeError):
        while len(body) <= MAX_REFUSAL and (
            more := exchange.chunk(max(0.0, until - time.monotonic()))
        ):
            body += more
    return body
