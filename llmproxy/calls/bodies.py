"""Reads the bodies of whole answers, and bounds what large ones hold of a process and of a person.

A body beyond ``LARGE`` takes its room before it is read on; until there is some its provider waits, because nothing
reads. The room goes back once the answer is written to the caller. Large bodies are parsed and written one at a time,
aside from the event loop.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import ECONNRESET
from functools import partial
from threading import Condition, Lock
from typing import ParamSpec, TypeVar
from uuid import UUID

from django.conf import settings

from config.platform.concurrency.greenlets import WorkerThread
from config.platform.http.errors import ExchangeError, TimedOut, TooLarge
from llmproxy.calls.admission import Admission
from llmproxy.calls.attempt import MAX_ANSWER, Attempt
from llmproxy.calls.call import Call
from llmproxy.dialects.failures import last_usage
from llmproxy.dialects.reading import parse_json
from llmproxy.dialects.usage import reported, reported_input
from llmproxy.requests.call_request import Surface

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

LARGE = 1024 * 1024
# Bytes of large bodies that are held at once.
MOST_OF_A_PROCESS = 128 * 1024 * 1024
MOST_OF_A_PERSON = MAX_ANSWER
# An answer may have so many bytes for each token of its output limit (twenty alternatives of each in JSON), and so many
# beside them.
BYTES_A_TOKEN = 4 * 1024
BYTES_BESIDE = 1024 * 1024
# A streamed response has each token as it comes, and again at the end of its text, its part, its item and the whole.
TIMES_IN_RESPONSES = 5
# Its first two events and its last repeat the instructions and tools of the request, perhaps with longer escapes.
REPEATS_IN_RESPONSES = 6
# An answer that cites its documents repeats what it cites, each part perhaps several times, in few tokens.
TIMES_CITED = 4
# The end of an answer that cannot be read, where its usage stands.
TAIL = 64 * 1024
# The bytes of a large answer that a server writes at once.
PART = 64 * 1024
# A caller that takes fewer bytes a second, after some time, gives way to others.
SLOW_SECONDS = 30.0
LEAST_A_SECOND = 256 * 1024
# Seconds between two looks whether a call that waits has been cut.
LOOK_SECONDS = 1.0


class NotRead(Exception):
    """The body of an answer could not be read; ``tail`` is its end, as far as it came."""

    def __init__(self, failure: ExchangeError, tail: bytes) -> None:
        super().__init__(str(failure))
        self.failure, self.tail = failure, tail


class NoRoom(TimedOut):
    """There was no room for a large answer in time, which is no fault of its provider."""


class Rooms:
    """The bytes of large bodies that this process holds."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._taken = self._waiting = 0
        self._of_people: Counter[UUID] = Counter()

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def are_wanted(self) -> bool:
        """Returns whether an answer waits for room."""
        return self._waiting > 0

    def take(self, person: UUID, size: int, *, seconds: float) -> bool:
        """Waits until there is room, and whether there was within so many seconds."""
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(lambda: self._took(person, size), seconds)
            finally:
                self._waiting -= 1

    def give_back(self, person: UUID, size: int) -> None:
        with self._changed:
            self._taken -= size
            self._of_people[person] -= size
            if not self._of_people[person]:
                del self._of_people[person]
            self._changed.notify_all()

    def _took(self, person: UUID, size: int) -> bool:
        is_room = (
            self._taken + size <= MOST_OF_A_PROCESS
            and self._of_people[person] + size <= MOST_OF_A_PERSON
        )
        if is_room:
            self._taken += size
            self._of_people[person] += size
        return is_room


rooms = Rooms()
_thread = WorkerThread("Many large answers are being read just now. Please try again in a moment.")
_turn = Lock()


def most_bytes(admission: Admission, *, streamed: bool = False) -> int:
    """The bytes that an answer may have, by its output limit, which embeddings have not.

    ``streamed``: it is a stream, whatever was asked for.
    """
    request = admission.request
    if request.surface is Surface.EMBEDDINGS:
        return MAX_ANSWER
    is_stream = request.stream or streamed
    times = TIMES_IN_RESPONSES if is_stream and request.surface is Surface.RESPONSES else 1
    limit = admission.reservation.output_limit
    repeated = REPEATS_IN_RESPONSES * admission.size if request.surface is Surface.RESPONSES else 0
    if request.cites:
        repeated += TIMES_CITED * admission.size
    return min(MAX_ANSWER, times * (BYTES_BESIDE + limit * BYTES_A_TOKEN) + repeated)


class Body:
    """The bytes of an answer in one piece, as they come; of one that is too large the end alone is kept.

    Where its length was not known, the room is as large as it may be until it is read.
    """

    def __init__(self, call: Call, attempt: Attempt) -> None:
        # That of another route's answer.
        call.give_back_room()
        self._call, self._attempt = call, attempt
        self._most = most_bytes(call.admission, streamed=_is_stream(attempt))
        self._pieces: list[bytes] = []
        self.size = 0

    @property
    def tail(self) -> bytes:
        return b"".join(self._pieces)[-TAIL:]

    def add(self, piece: bytes) -> None:
        """Adds what has come; a large one waits for its room here."""
        self._pieces.append(piece)
        self.size += len(piece)
        if self.size > self._most:
            self._call.give_back_room()
            self._pieces = [self.tail]
        elif self.size > LARGE and self._call.room is None:
            _take_room(self._call, _expected(self._attempt, self._most))

    def is_object(self) -> bool:
        """Returns whether it is a whole object already: a server may leave the connection open. Not asked of a large
        one."""
        if self.size > LARGE:
            return False
        try:
            parse_json(b"".join(self._pieces))
        except ValueError:
            return False
        return True

    def whole(self) -> bytes:
        """All of it, at its end. Raises ``TooLarge``."""
        if self.size > self._most:
            raise TooLarge(f"the answer is over {self._most} bytes", sent=True)
        if self._call.room is not None:
            _keep_room(self._call, self.size, of=_expected(self._attempt, self._most))
        self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]


def read(call: Call, attempt: Attempt) -> bytes:
    """The body of an answer whose head has come. Raises ``NotRead``; one that is too large is read to its end."""
    body, exchange = Body(call, attempt), attempt.exchange
    assert exchange is not None
    try:
        for piece in exchange:
            body.add(piece)
        return body.whole()
    except ExchangeError as failure:
        raise NotRead(failure, body.tail) from None


def note_unread(attempt: Attempt, surface: Surface, tail: bytes) -> None:
    """Notes that an answer could not be read, with the usage at its end."""
    log.warning("answer_unread", extra={"provider": attempt.target.provider})
    read = reported_input if surface is Surface.EMBEDDINGS else reported
    usage, prompt = last_usage(tail) or {}, attempt.meter.prompt
    report = read(usage)
    if report is None and prompt is not None:
        # Anthropic's streams report it at their beginning, and may not at their end.
        names = ("prompt_tokens", "cached_tokens", "cache_write_tokens")
        report = read({**dict(zip(names, prompt, strict=True)), **usage})
    attempt.meter.mark_unread(report)


def on_worker_thread(call: Call, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Parses or writes an answer: a large one off the event loop, one at a time."""
    if call.room is None:
        return work(*args, **kwargs)
    # A paid answer is not refused because others are being read.
    with _turn:
        return _thread.run(work, *args, **kwargs)


class Parts:
    """The body of a large answer in parts, for a WSGI server; closing it gives back the call's room.

    The connection of a caller that has not taken it within the longest time of a call is reset, and so is that of a
    slow one once others wait for room.
    """

    def __init__(self, call: Call, body: bytes) -> None:
        self._call, self._body, self._at = call, body, 0
        self._began = time.monotonic()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        part = self._body[self._at : self._at + PART]
        if not part:
            raise StopIteration
        elapsed = time.monotonic() - self._began
        is_slow = elapsed > SLOW_SECONDS and self._at < LEAST_A_SECOND * elapsed
        if elapsed > settings.LLM_MAX_SECONDS or (is_slow and rooms.are_wanted):
            log.warning("large_answer_cut")
            raise ConnectionResetError(ECONNRESET, "the caller reads too slowly")
        self._at += len(part)
        return part

    def close(self) -> None:
        self._body = b""
        self._call.give_back_room()


def _is_stream(attempt: Attempt) -> bool:
    """Returns whether an answer has the media type of a stream of events."""
    head = attempt.exchange.head(0) if attempt.exchange is not None else None
    return head is not None and "event-stream" in head.headers.get("Content-Type", "").lower()


def _expected(attempt: Attempt, most: int) -> int:
    """The bytes of a body by its head, else as many as it may have."""
    head = attempt.exchange.head(0) if attempt.exchange is not None else None
    if head is None or head.headers.get("Content-Encoding"):
        # The length of a compressed body says little of it.
        return most
    with suppress(ValueError, TypeError):
        return min(most, max(LARGE, int(head.headers.get("Content-Length", ""))))
    return most


def _take_room(call: Call, size: int) -> None:
    person = call.admission.caller.user_id
    while not rooms.take(person, size, seconds=LOOK_SECONDS):
        if call.stop or time.monotonic() >= call.deadline:
            raise NoRoom("there is no room for a large answer", sent=True)
    call.room = partial(rooms.give_back, person, size)


def _keep_room(call: Call, size: int, *, of: int) -> None:
    """Gives back what a body has not filled of its room."""
    person = call.admission.caller.user_id
    rooms.give_back(person, of - size)
    call.room = partial(rooms.give_back, person, size)
