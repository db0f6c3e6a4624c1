"""The pace of a stream, by a clock of its own."""

from typing import Any, cast

import pytest

from config.platform.http.errors import TimedOut
from config.platform.http.exchange import Exchange
from llmproxy.calls import pace
from llmproxy.calls.pace import FULL_READ, MOST_READS, Pace


class Clock:
    """The time, which passes in sleep alone."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


class Coming:
    """A connection that brings pieces, each at its time."""

    def __init__(self, clock: Clock, *pieces: tuple[float, bytes]) -> None:
        self._clock = clock
        self._pieces = [(clock.now + at, piece) for at, piece in pieces]

    def chunk(self, timeout: float) -> bytes | None:
        if not self._pieces:
            return b""
        until = self._clock.now + timeout
        self._clock.now = min(until, max(self._clock.now, self._pieces[0][0]))
        come = [piece for at, piece in self._pieces if at <= self._clock.now]
        self._pieces = self._pieces[len(come) :]
        return b"".join(come) if come else None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    return clock


def chunks(paced: Pace, coming: Any) -> list[bytes | None]:
    out: list[bytes | None] = []
    while (piece := paced.chunk(cast("Exchange", coming), 10.0)) != b"":
        out.append(piece)
    return out


def test_chunks_are_not_merged_without_a_pace(clock: Clock) -> None:
    coming = Coming(clock, (0.0, b"a"), (0.01, b"b"), (0.02, b"c"))
    assert chunks(Pace(0.0), coming) == [b"a", b"b", b"c"]
    assert clock.slept == []


def test_chunks_within_the_pace_are_merged(clock: Clock) -> None:
    coming = Coming(clock, *((n / 100, b"%d" % n) for n in range(10)))
    assert chunks(Pace(0.05), coming) == [b"0", b"12345", b"6789"]
    # The second chunk came within the pace. The end comes with the last piece, and is told at once by the next read.
    assert clock.slept == [0.04, 0.05]


def test_a_stream_slower_than_the_pace_never_sleeps(clock: Clock) -> None:
    coming = Coming(clock, *((n / 10, b"%d" % n) for n in range(4)))
    assert chunks(Pace(0.05), coming) == [b"0", b"1", b"2", b"3"]
    assert clock.slept == []


def test_a_stream_that_slows_down_does_not_sleep_any_more(clock: Clock) -> None:
    coming = Coming(clock, (0.0, b"a"), (0.01, b"b"), (0.2, b"c"), (0.3, b"d"), (0.4, b"e"))
    assert chunks(Pace(0.05), coming) == [b"a", b"b", b"c", b"d", b"e"]
    assert clock.slept == [0.04, 0.05]


def test_a_read_that_filled_its_buffer_is_followed_by_the_next_at_once(clock: Clock) -> None:
    class Full(Coming):
        def chunk(self, timeout: float) -> bytes | None:
            return self._pieces.pop(0)[1] if self._pieces else b""

    full = b"a" * FULL_READ
    coming = Full(clock, (0.0, full), (0.0, b"b"))
    assert chunks(Pace(0.05), coming) == [full + b"b"]
    assert clock.slept == []
    # As the second chunk within the pace too.
    paced = Pace(0.05)
    for _ in range(2):
        coming = Full(clock, (0.0, full), (0.0, b"b"))
        assert paced.chunk(cast("Exchange", coming), 10.0) == full + b"b"
    assert clock.slept == []


def test_the_first_chunk_after_a_pause_waits_for_nothing(clock: Clock) -> None:
    coming = Coming(clock, (0.0, b"a"), (3.0, b"b"), (20.0, b"c"))
    paced, begun = Pace(0.05), clock.now
    came = []
    for _ in range(5):
        piece = paced.chunk(cast("Exchange", coming), 10.0)
        came.append((piece, round(clock.now - begun, 3)))
    # A silence of ten seconds is told, and what comes after it goes on as it comes.
    assert came == [(b"a", 0.0), (b"b", 3.0), (None, 13.0), (b"c", 20.0), (b"", 20.0)]


def test_records_that_are_read_one_by_one_are_one_piece(clock: Clock) -> None:
    """As those of TLS are."""

    class Records(Coming):
        def chunk(self, timeout: float) -> bytes | None:
            if self._pieces and self._pieces[0][0] <= self._clock.now:
                return self._pieces.pop(0)[1]
            return super().chunk(timeout)

    coming = Records(clock, *((n / 100, b"%d" % n) for n in range(10)))
    assert chunks(Pace(0.05), coming) == [b"0", b"12345", b"6789"]


def test_a_failure_after_bytes_is_raised_after_them(clock: Clock) -> None:
    class Broken(Coming):
        def chunk(self, timeout: float) -> bytes | None:
            if not self._pieces:
                raise TimedOut("the server is silent", sent=True)
            return super().chunk(timeout)

    paced, coming = Pace(0.05), cast("Exchange", Broken(clock, (0.0, b"a")))
    assert paced.chunk(coming, 10.0) == b"a"
    with pytest.raises(TimedOut):
        paced.chunk(coming, 10.0)


def test_a_failure_that_came_with_bytes_is_told_without_another_sleep(clock: Clock) -> None:
    class Broken(Coming):
        def chunk(self, timeout: float) -> bytes | None:
            if not self._pieces:
                raise TimedOut("the server is silent", sent=True)
            return super().chunk(timeout)

    coming = cast("Exchange", Broken(clock, (0.0, b"a"), (0.01, b"b")))
    paced = Pace(0.05)
    assert [paced.chunk(coming, 10.0), paced.chunk(coming, 10.0)] == [b"a", b"b"]
    with pytest.raises(TimedOut):
        paced.chunk(coming, 10.0)
    assert clock.slept == [0.04]


def test_no_read_is_lost_where_more_has_come_than_one_piece_takes(clock: Clock) -> None:
    class Full(Coming):
        def chunk(self, timeout: float) -> bytes | None:
            return self._pieces.pop(0)[1] if self._pieces else b""

    many = [bytes([n]) * FULL_READ for n in range(2 * MOST_READS + 1)]
    coming = Full(clock, *((0.0, each) for each in many))
    came = chunks(Pace(0.05), coming)
    assert (len(came), b"".join(filter(None, came))) == (3, b"".join(many))
