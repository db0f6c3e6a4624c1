"""Under gevent: of answers whose next bytes come at the same time, a few go on each time the loop comes round."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import gevent
import pytest
from gevent import socket

from llmproxy import sockets
from llmproxy.sockets import AT_A_TIME, SHARE, Line

CROWD = 5 * AT_A_TIME
LONG = 30.0


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Line, Any]]]:
    """Lines that wait for nothing else, each with the other end of its socket."""
    monkeypatch.setattr(sockets, "socket", socket)
    with ExitStack() as stack:
        made = []
        for _ in range(CROWD):
            near, far = socket.socketpair()
            stack.callback(near.close)
            stack.callback(far.close)
            line = Line(
                connect_timeout=LONG,
                first_byte_timeout=LONG,
                read_timeout=LONG,
                deadline=time.monotonic() + LONG,
            )
            line.use(near, is_reused=False)
            made.append((line, far))
        yield made


def let_all_wait(waits: list[Callable[[], None]]) -> list[gevent.Greenlet]:
    begun = [gevent.spawn(each) for each in waits]
    gevent.idle()
    return begun


def test_a_few_go_on_in_each_round(pairs: list[tuple[Line, Any]]) -> None:
    loop = gevent.get_hub().loop
    rounds: Counter[int] = Counter()

    def receive(line: Line) -> None:
        assert line.receive(LONG) == b"x"
        rounds[loop.iteration] += 1

    begun = let_all_wait([lambda line=line: receive(line) for line, _ in pairs])
    for _, far in pairs:
        far.sendall(b"x")
    gevent.joinall(begun, raise_error=True)
    assert max(rounds.values()) == AT_A_TIME
    assert rounds.total() == CROWD


def test_what_has_to_wait_several_times_is_done_long_before_all_of_a_crowd(
    pairs: list[tuple[Line, Any]],
) -> None:
    went: list[str] = []

    def begin() -> None:
        near, far = socket.socketpair()
        with near, far:
            for _ in range(3):
                far.sendall(b"x")
                gevent.socket.wait_read(near.fileno())
                near.recv(1)
        went.append("beginning")

    def receive(line: Line) -> None:
        line.receive(LONG)
        went.append("chunk")

    begun = let_all_wait([lambda line=line: receive(line) for line, _ in pairs])
    for _, far in pairs:
        far.sendall(b"x")
    begun.append(gevent.spawn(begin))
    gevent.joinall(begun, raise_error=True)
    assert len(went) == CROWD + 1
    assert went.index("beginning") <= 4 * AT_A_TIME


def test_whose_bytes_are_there_is_not_told_of_silence_because_others_go_first(
    pairs: list[tuple[Line, Any]],
) -> None:
    got: list[bytes | None] = []

    def receive(line: Line) -> None:
        got.append(line.receive(0.5))
        # The first few together take longer than each is ready to wait.
        if len(got) <= AT_A_TIME:
            time.sleep(1.0 / AT_A_TIME)

    begun = let_all_wait([lambda line=line: receive(line) for line, _ in pairs])
    for _, far in pairs:
        far.sendall(b"x")
    gevent.joinall(begun, raise_error=True)
    assert got == [b"x"] * CROWD


def test_where_rounds_are_long_more_than_a_few_go_on_in_each(
    pairs: list[tuple[Line, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "AT_A_TIME", 1)
    loop = gevent.get_hub().loop
    rounds: Counter[int] = Counter()

    def receive(line: Line) -> None:
        line.receive(LONG)
        rounds[loop.iteration] += 1

    begun = let_all_wait([lambda line=line: receive(line) for line, _ in pairs])
    for _, far in pairs:
        far.sendall(b"x")
    gevent.joinall(begun, raise_error=True)
    assert max(rounds.values()) == (CROWD - 1) // SHARE


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the loop has been told of that nobody caught."""
    told: list[Any] = []
    monkeypatch.setattr(gevent.get_hub(), "handle_error", lambda *what: told.append(what))
    return told


@pytest.mark.parametrize("crowded", [False, True])
def test_a_line_that_is_cut_ends_the_wait_at_once(
    pairs: list[tuple[Line, Any]], complaints: list[Any], crowded: bool
) -> None:
    got: list[Any] = []

    def receive(line: Line) -> None:
        try:
            got.append(line.receive(LONG))
        except OSError as error:
            got.append(error)

    begun = let_all_wait([lambda line=line: receive(line) for line, _ in pairs])
    for _, far in pairs:
        if crowded:
            far.sendall(b"x")
    for line, _ in pairs:
        line.cut()
    gevent.joinall(begun, timeout=LONG / 2, raise_error=True)
    assert len(got) == CROWD
    assert complaints == []


def test_whoever_is_ended_while_waiting_for_its_turn_keeps_nobody_waiting(
    pairs: list[tuple[Line, Any]], complaints: list[Any]
) -> None:
    went: list[int] = []
    ended: list[int] = []

    def receive(number: int) -> None:
        assert pairs[number][0].receive(LONG) == b"x"
        went.append(number)
        if len(went) == AT_A_TIME:
            # By the time it is ended, all that are left are waiting for their turn.
            ended.append(min({*range(CROWD)} - {*went}))
            begun[ended[0]].kill(block=False)

    begun = let_all_wait([lambda number=number: receive(number) for number in range(CROWD)])
    for _, far in pairs:
        far.sendall(b"x")
    gevent.joinall(begun, timeout=LONG)
    assert sorted(went + ended) == [*range(CROWD)]
    assert complaints == []
