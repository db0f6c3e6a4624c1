"""A gate for work that would stop everything else: one at a time per process, off the loop, at low priority.

Under gevent such work (argon2: about 20 ms of C that gives up the interpreter lock but not the greenlet)
runs on a real thread whose nice value is 19, so that a flood of sign-ins leaves other answers as quick as
they were. The thread goes from one to the next by itself. Under plain threads and in commands it is called directly.
"""

import os
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar

from gevent import get_hub
from gevent.event import Event
from gevent.monkey import get_original, is_module_patched

from config.api.problems import ServiceUnavailable

# Longer than any queue that can still be worth waiting for: at 60 a second this is 120 sign-ins.
WAIT_SECONDS = 2.0
LOWEST_PRIORITY = 19
# While as many wait for their turn, so many are given back at once. What comes after a hash, its thread has driven out
# of the core's caches, so that it takes twice as long as it would; and those who go on together share their questions.
TOGETHER = 4

P = ParamSpec("P")
R = TypeVar("R")

_alone = threading.Lock()


def off_loop(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs ``work`` when its turn comes and returns what it returns.

    Raises ``ServiceUnavailable`` when its turn does not come within ``WAIT_SECONDS``.
    """
    called = partial(work, *args, **kwargs)
    if is_module_patched("threading"):
        result: R = _thread(os.getpid()).result_of(called)
        return result
    if not _alone.acquire(timeout=WAIT_SECONDS):
        raise _busy()
    try:
        return called()
    finally:
        _alone.release()


def _busy() -> ServiceUnavailable:
    return ServiceUnavailable(
        "Many people are signing in just now. Please try again in a moment.", retry_after=2
    )


class _Place:
    """Somebody's work in the line."""

    def __init__(self, work: Callable[[], Any]) -> None:
        # None once it is done: a password is in it.
        self.work: Callable[[], Any] | None = work
        # Of the thread: whether it has come to this. Of who waits: whether nobody does any more.
        self.begun = self.left = False
        self.over = Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def do(self) -> None:
        assert self.work is not None
        self.begun = True
        try:
            self.result = self.work()
        except BaseException as error:  # noqa: BLE001 - raised for who asked
            self.error = error
        finally:
            self.work = None


class _Thread:
    """A real thread, asked by greenlets."""

    def __init__(self) -> None:
        self._loop = get_hub().loop
        # That of real threads, whatever gevent has made of it.
        self._line = get_original("queue", "SimpleQueue")()
        get_original("_thread", "start_new_thread")(self._run, ())

    def result_of(self, work: Callable[[], Any]) -> Any:
        place = _Place(work)
        self._line.put(place)
        try:
            while not place.over.wait(WAIT_SECONDS):
                if not place.begun:
                    raise _busy()
            if place.error is not None:
                raise place.error
            return place.result
        finally:
            place.left = True
            # It knows where it came from, and so this place: only the collector of garbage would find the two.
            place.error = None

    def _run(self) -> None:
        # On Linux a nice value belongs to a thread, and 0 names the calling one.
        os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
        done: list[_Place] = []
        while True:
            place = self._line.get()
            if not place.left:
                place.do()
                done.append(place)
            # Nobody knows when the next one comes.
            del place
            if done and (len(done) >= TOGETHER or self._line.qsize() < TOGETHER):
                self._loop.run_callback_threadsafe(_tell, done)
                done = []


def _tell(done: list[_Place]) -> None:
    for place in done:
        place.over.set()
        if place.left:
            # It came after who waited for it had cleared it.
            place.error = None


@cache
def _thread(pid: int) -> _Thread:
    """The process's one; made anew after a fork."""
    return _Thread()
