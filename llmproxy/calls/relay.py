"""Relays a call: the request to a provider, its answer to the caller, and the settlement before the last event.

The relay holds no database connection while it waits. Every call ends in exactly one settlement.
"""

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any

from django.conf import settings

from config.platform.http.errors import ExchangeError, TimedOut, Unreachable
from config.platform.problems.problem import InternalError, Problem, ServiceUnavailable
from llmproxy.calls import bodies, one_piece
from llmproxy.calls.attempt import Attempt
from llmproxy.calls.call import Call, End
from llmproxy.calls.failover import OverShare, attempts
from llmproxy.calls.meter import State
from llmproxy.calls.reading import StreamReader, check_head
from llmproxy.catalogue import health, known_refusals, limit_names, readiness
from llmproxy.dialects.forms import whole_answer
from llmproxy.dialects.protocol import (
    KEEP_ALIVE,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
)

log = logging.getLogger(__name__)

# The number of keep-alives for which a stream waits for a settlement while the database is unavailable: its text was
# delivered, and a caller that hears of a failure asks and pays again. A whole answer waits for one interval, in
# silence.
SETTLE_KEEP_ALIVES = 6


def complete(call: Call) -> dict[str, Any]:
    """Returns the whole answer of a call and settles it. A problem is raised after the settlement too.

    It is read to its end although the client disconnects, unless the watch cuts it. A large answer keeps its room until
    its caller gives that back, once it is written.
    """
    try:
        return _completed(call, *_whole_answer(call))
    except BaseException as error:  # noqa: BLE001 - every failure has to settle the call
        call.give_back_room()
        raise _settle_failure(call, error) from None


def _completed(call: Call, attempt: Attempt, answer: dict[str, Any]) -> dict[str, Any]:
    """Settles a call that has its answer, and writes the charge into it."""
    end = End.CLIENT_GONE if call.left_at is not None or call.has_left() else End.DONE
    settled = call.settle(end)
    if not settled.wait(settings.LLM_KEEPALIVE_SECONDS) or settled.is_refused:
        raise ServiceUnavailable
    codec = attempt.target.codec(call.admission.request.surface)
    return codec.completed(
        answer,
        called=attempt.own_model_name(call.admission.model),
        charged=None if settled.charged == attempt.meter.report else settled.charged,
    )


def _whole_answer(call: Call) -> tuple[Attempt, dict[str, Any]]:
    """The answer of the first target that gives one."""
    with closing(attempts(call)) as asked:
        for attempt in asked:
            try:
                answer = _read_answer(call, attempt)
            except Exception as failure:  # noqa: BLE001 - failover raises it, or asks another
                attempt.failure = failure
            else:
                _note_answer(call, attempt)
                return attempt, answer
    raise ProviderUnavailable


def _note_answer(call: Call, attempt: Attempt) -> None:
    health.note_answer(attempt.target, asked_at=attempt.sent_at() or 0.0)
    limit_names.note_answer(attempt.target)
    known_refusals.note_answer(attempt.target, call.admission.request.surface)


def _read_answer(call: Call, attempt: Attempt) -> dict[str, Any]:
    """The answer of one attempt, with its report and size noted. Raises a problem for anything else."""
    exchange, meter = attempt.exchange, attempt.meter
    assert exchange is not None
    if exchange.head(attempt.share) is None:
        raise OverShare("the provider is silent", sent=True)
    check_head(attempt)
    meter.mark_first_byte()
    request = call.admission.request
    try:
        body = bodies.read(call, attempt)
    except bodies.NotRead as unread:
        if not call.stop and not isinstance(unread.failure, TimedOut):
            bodies.note_unread(attempt, request.surface, unread.tail)
        raise unread.failure from None
    codec = attempt.target.codec(request.surface)
    work = partial(whole_answer, codec, target=attempt.target, request=request)
    answer, meter.report, meter.size = one_piece.read(call, attempt, body, work)
    meter.state = State.FINISHED
    return answer


class Stream:
    """The answer of a call as server-sent events for a WSGI server: iterate, and close at any point.

    Made by :func:`stream`, which has already waited one keep-alive interval for the first event.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        # The problem that ended the stream early.
        self.failure: Problem | None = None
        self._sent_at = time.monotonic()
        # Kept because reading a setting is too slow for each chunk.
        self._keep_alive = settings.LLM_KEEPALIVE_SECONDS
        self._reader: StreamReader | None = None
        self._has_begun = False
        self._parts = self._relay()
        self._all: Iterator[bytes] = self._parts

    def begin(self) -> None:
        """Waits one keep-alive interval for the first event. A failure until then is settled and raised."""
        self._all = chain((next(self._parts),), self._parts)

    def __iter__(self) -> Iterator[bytes]:
        return self._all

    def __next__(self) -> bytes:
        return next(self._all)

    def close(self) -> None:
        """Ends the call. The server calls this at the end of the answer, or when the client has disconnected."""
        try:
            self._parts.close()
        finally:
            self.call.give_back_room()
            # Has no effect where the call is settled already.
            stop = self.call.stop
            end = End.CLIENT_GONE if stop.reason is None else stop.reason.end
            self.call.settle(end, told=stop.problem)

    def _relay(self) -> Generator[bytes]:
        """Yields what the caller gets. A failure before the first part is raised, a later one becomes an event."""
        try:
            yield from self._delivered()
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - every failure has to settle the call
            # Also where this process has to end at once.
            self.failure = _settle_failure(self.call, error)
            if (reader := self._reader) is None or not self._has_begun:
                raise self.failure from None
            yield reader.failure(self.failure)

    def _delivered(self) -> Iterator[bytes]:
        """Yields the answer of the first target that answers, with keep-alives in silence."""
        with closing(attempts(self.call)) as asked:
            for attempt in asked:
                reader = self._reader = StreamReader(self.call, attempt)
                try:
                    yield from self._deliver(attempt, reader)
                except GeneratorExit:
                    reader.finish()
                    raise
                except Exception as failure:  # noqa: BLE001 - failover raises it, or asks another
                    attempt.failure = failure
                else:
                    reader.finish()
                    return

    def _deliver(self, attempt: Attempt, reader: StreamReader) -> Iterator[bytes]:
        out = b""
        while not reader.is_over:
            had_output, until = attempt.meter.has_output, self._sent_at + self._keep_alive
            out += reader.receive(max(0.0, until - time.monotonic()))
            if attempt.meter.has_output and not had_output:
                readiness.note_beginning(attempt.target.route)
            is_due = (out and attempt.meter.has_output) or time.monotonic() >= until
            if is_due and not reader.is_over:
                self._has_begun = True
                # Without output the provider is silent, or sent something that is not for the caller.
                out = out or KEEP_ALIVE
                # Nearly all of an answer passes here.
                while out and not reader.is_over:
                    yield out
                    self._sent_at = time.monotonic()
                    out = reader.receive(self._keep_alive) if attempt.meter.has_output else b""
        _note_answer(self.call, attempt)
        settled = self.call.settle(End.DONE)
        if not settled.is_set() or settled.is_refused:
            self._has_begun = True
            if out:
                # These bytes do not wait for the settlement.
                yield out
                out = b""
            for _ in range(SETTLE_KEEP_ALIVES):
                if settled.wait(self._keep_alive):
                    break
                yield KEEP_ALIVE
            if not settled.is_set() or settled.is_refused:
                raise ServiceUnavailable
        yield out + reader.ending(settled.charged)

    def how_ended(self) -> str | None:
        """The end of the stream for the log; None where the server sees it itself."""
        if self.call.end == End.CLIENT_GONE:
            return "cut"
        return self.failure.code if self.failure else None


def stream(call: Call) -> Stream:
    """Starts a streamed answer. A failure within one keep-alive interval is settled and raised."""
    answer = Stream(call)
    try:
        answer.begin()
    except BaseException:
        call.give_back_room()
        raise
    return answer


def _settle_failure(call: Call, error: BaseException) -> Problem:
    """Settles a failed call and returns the problem for its caller."""
    end, problem = _end_by(call, error)
    if isinstance(problem, InternalError):
        log.error("relay_failed", exc_info=error)
    call.settle(end, told=problem)
    return problem


def _end_by(call: Call, error: BaseException) -> tuple[End, Problem]:
    if call.stop.reason is not None:
        return call.stop.reason.end, call.stop.problem or ServiceUnavailable()
    if not isinstance(error, Exception):
        # This process ends.
        return End.CRASHED, ServiceUnavailable()
    problem = _problem(error)
    if isinstance(problem, InternalError):
        return End.CRASHED, problem
    if call.attempt is not None and call.attempt.meter.is_unread:
        return End.UNREAD, problem
    return End.TIMEOUT if isinstance(problem, ProviderTimeout) else End.PROVIDER_FAILED, problem


def _problem(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case TimedOut():
            return ProviderTimeout()
        case Unreachable():
            return ProviderUnavailable()
        case ExchangeError():
            return ProviderError()
    return InternalError()
