"""Under gevent: many who wait for the next bytes of their answers at the same time."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import gevent
import pytest
from gevent import socket

from llmproxy import sockets
from llmproxy.sockets import Line

CROWD = 40
SLOW = 8
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


def test_whose_bytes_are_there_is_not_told_of_silence_because_others_go_first(
    pairs: list[tuple[Line, Any]],
) -> None:
    got: list[bytes | None] = []

    def receive(line: Line) -> None:
        got.append(line.receive(0.5))
        # The first few together take longer than each is ready to wait.
        if len(got) <= SLOW:
            time.sleep(1.0 / SLOW)

    begun = let_all_wait([lambda line=line: receive(line) for line, _ in pairs])
    for _, far in pairs:
        far.sendall(b"x")
    gevent.joinall(begun, raise_error=True)
    assert got == [b"x"] * CROWD


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
