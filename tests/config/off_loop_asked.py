"""Says what becomes of slow work that greenlets ask for, as a line of JSON."""

from gevent import monkey

monkey.patch_all()

import gc  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import time  # noqa: E402
import weakref  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
from gevent.monkey import get_original  # noqa: E402

from config import off_loop as room  # noqa: E402
from config.api.problems import ServiceUnavailable  # noqa: E402
from config.off_loop import off_loop  # noqa: E402

SECONDS = 20
PATIENCE = 5.0


class Slow:
    """Work that a real thread does, and that waits there until it may go on."""

    def __init__(self) -> None:
        self.may_go_on = get_original("_thread", "allocate_lock")()
        self.may_go_on.acquire()
        self.done: list[int] = []
        self.running = self.most_at_once = 0

    def __call__(self, number: int) -> int:
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        self.may_go_on.acquire()
        self.may_go_on.release()
        self.done.append(number)
        self.running -= 1
        if number < 0:
            raise ValueError(number)
        return 2 * number


def _many() -> dict[str, Any]:
    slow, done_when_told = Slow(), {}

    def ask(number: int) -> int:
        answer = off_loop(slow, number)
        done_when_told[number] = len(slow.done)
        return answer

    asking = [gevent.spawn(ask, number) for number in range(12)]
    gevent.sleep(0)
    # The loop has gone on meanwhile.
    slow.may_go_on.release()
    answers = [each.get(timeout=SECONDS) for each in asking]
    return {
        "answers": answers,
        "most_at_once": slow.most_at_once,
        "order": slow.done,
        "done_when_told": [done_when_told[number] for number in range(12)],
    }


def _alone() -> dict[str, Any]:
    slow = Slow()
    slow.may_go_on.release()
    try:
        off_loop(slow, -1)
    except ValueError as error:
        raised = str(error)
    return {
        "raised": raised,
        "nice": off_loop(lambda: os.getpriority(os.PRIO_PROCESS, 0)),
        "nice_of_loop": os.getpriority(os.PRIO_PROCESS, 0),
    }


def _left() -> dict[str, Any]:
    """One is at work for longer than anybody waits; of the two behind it one is killed, and one told to come later."""
    room.WAIT_SECONDS = 0.2
    slow = Slow()
    first = gevent.spawn(off_loop, slow, 1)
    gevent.sleep(0)
    killed, late = gevent.spawn(off_loop, slow, 2), gevent.spawn(off_loop, slow, 3)
    gevent.sleep(0)
    killed.kill()
    try:
        late.get(timeout=SECONDS)
    except ServiceUnavailable as refusal:
        told = refusal.headers["Retry-After"]
    slow.may_go_on.release()
    return {"told": told, "first": first.get(timeout=SECONDS), "done": slow.done}


class Password:
    """What work is done with."""


def _given_back(password: Password) -> Password:
    return password


def _refused(password: Password) -> None:
    raise ValueError


def _goes_wrong(password: Password) -> None:
    try:
        off_loop(_refused, password)
    except ValueError:
        return


def _is_left(password: Password) -> None:
    """Whoever asked is killed while the work is under way, which then goes wrong."""
    slow = Slow()

    def work(_: Password) -> None:
        slow(-1)

    asking = gevent.spawn(off_loop, work, password)
    _eventually(lambda: slow.running == 1)
    asking.kill()
    slow.may_go_on.release()
    _eventually(lambda: slow.done == [-1])


def _gone() -> dict[str, bool]:
    """By way of asking, whether nothing holds on to what work was done with, though no other work comes."""
    ways: dict[str, Callable[[Password], Any]] = {
        "done": lambda password: off_loop(_given_back, password),
        "went wrong": _goes_wrong,
        "left": _is_left,
    }
    gc.collect()
    gc.disable()
    gone = {}
    for name, way in ways.items():
        password = Password()
        kept = weakref.ref(password)
        way(password)
        del password
        gone[name] = _eventually(lambda kept=kept: kept() is None)
    gc.enable()
    return gone


def _eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < deadline:
        gevent.sleep(0.01)
    return holds()


if __name__ == "__main__":
    told = {"gone": _gone(), "many": _many(), "alone": _alone(), "left": _left()}
    print(json.dumps(told))
