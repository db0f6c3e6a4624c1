"""Says what becomes of things made ahead where greenlets take them, as a line of JSON."""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import os  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

from gevent.monkey import get_original  # noqa: E402

from config import ahead as room  # noqa: E402
from config.ahead import Ahead  # noqa: E402

READY = 8
SECONDS = 20.0
# A moment of the real clock, in which a thread that would go on does.
A_WHILE = 0.2

_here = get_original("_thread", "get_ident")


class Made:
    """Numbers, with who made each: the loop, or a thread that waits until it may."""

    def __init__(self) -> None:
        self.loop = _here()
        self.by_loop: list[int] = []
        self.by_thread: list[int] = []
        self.fails = False
        self.may_go_on = get_original("_thread", "allocate_lock")()

    def __call__(self) -> int:
        made = self.by_loop if _here() == self.loop else self.by_thread
        if made is self.by_thread:
            with self.may_go_on:
                pass
        if self.fails:
            raise MemoryError
        number = len(self.by_loop) + len(self.by_thread)
        made.append(number)
        return number


def until(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not what():
        if time.monotonic() > end:
            return False
        get_original("time", "sleep")(0.002)
    return True


def many() -> dict[str, Any]:
    made = Made()
    ahead = Ahead(made, ready=READY)
    made.may_go_on.acquire()
    first = [ahead.take(), ahead.take()]
    without = len(made.by_loop)
    made.may_go_on.release()
    filled = until(lambda: len(made.by_thread) == READY)
    then = [ahead.take() for _ in range(READY // 2 - 1)]
    get_original("time", "sleep")(A_WHILE)
    untouched = len(made.by_thread) == READY
    then.append(ahead.take())
    again = until(lambda: len(made.by_thread) == READY + READY // 2)
    then += [ahead.take() for _ in range(READY)]
    taken = first + then
    return {
        "who_finds_none_makes_his_own": without == 2,
        "filled_by_a_thread": filled,
        "left_alone_while_more_than_half_are_there": untouched,
        "filled_again": again,
        "loop_made_no_more": len(made.by_loop) == without,
        "each_once": len(set(taken)) == len(taken),
    }


def forked() -> bool:
    """Whether a child is given none of its parent's."""
    made = Made()
    ahead = Ahead(made, ready=READY)
    ahead.take()
    assert until(lambda: len(made.by_thread) == READY)
    reading, writing = os.pipe()
    child = get_original("os", "fork")()
    if child == 0:
        mine = ahead.take()
        os.write(writing, b"own" if mine in made.by_loop else b"parent's")
        os._exit(0)
    os.close(writing)
    get_original("os", "waitpid")(child, 0)
    return os.read(reading, 16) == b"own"


def failed() -> dict[str, Any]:
    made = Made()
    ahead = Ahead(made, ready=READY)
    made.may_go_on.acquire()
    ahead.take()
    made.fails = True
    made.may_go_on.release()
    try:
        get_original("time", "sleep")(A_WHILE)
        ahead.take()
    except MemoryError:
        told = True
    else:
        told = False
    made.fails = False
    ahead.take()
    return {"told": told, "filled_later": until(lambda: len(made.by_thread) == READY)}


def crowded() -> dict[str, Any]:
    """Where no thread can be begun, as at the limit of a host."""
    made = Made()
    ahead = Ahead(made, ready=READY)

    def refused(*_: Any) -> int:
        raise RuntimeError("can't start new thread")

    original, room.get_original = room.get_original, lambda *_: refused
    own = [ahead.take() for _ in range(2)]
    room.get_original = original
    ahead.take()
    return {
        "own": own == made.by_loop[:2],
        "filled_later": until(lambda: len(made.by_thread) == READY),
    }


if __name__ == "__main__":
    print(
        json.dumps({"many": many(), "forked": forked(), "failed": failed(), "crowded": crowded()})
    )
