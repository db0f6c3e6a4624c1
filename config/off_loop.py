"""A gate for work that would stop everything else: one at a time per process, off the loop, at low priority.

Under gevent such work (argon2: about 20 ms of C that gives up the interpreter lock but not the greenlet)
runs on a real thread whose nice value is 19, so that a flood of sign-ins leaves other answers as quick as
they were. There are two of them: while one works the other stands ready with what comes next, for the loop needs a
moment between hearing of an end and sending more. Under plain threads and in commands it is called directly.
"""

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, ParamSpec, TypeVar

from gevent.monkey import get_original, is_module_patched
from gevent.threadpool import ThreadPool

from config.problems import ServiceUnavailable

# Longer than any queue that can still be worth waiting for: at 60 a second this is 120 sign-ins.
WAIT_SECONDS = 2.0
LOWEST_PRIORITY = 19

P = ParamSpec("P")
R = TypeVar("R")

# At work, and ready to be.
PLACES = 2
_gate = threading.BoundedSemaphore(PLACES)
# A lock of real threads, whatever gevent has made of the others.
_turn = get_original("_thread", "allocate_lock")()


def off_loop(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs ``work`` when its turn comes and returns what it returns.

    Raises ``ServiceUnavailable`` when its turn does not come within ``WAIT_SECONDS``.
    """
    if not _gate.acquire(timeout=WAIT_SECONDS):
        raise ServiceUnavailable(
            "Many people are signing in just now. Please try again in a moment.", retry_after=2
        )
    try:
        if is_module_patched("threading"):
            result: R = _threads(os.getpid()).apply(_at_low_priority, (work, args, kwargs))
            return result
        return _in_turn(work, args, kwargs)
    finally:
        _gate.release()


def _in_turn(work: Callable[..., R], args: Any, kwargs: Any) -> R:
    with _turn:
        return work(*args, **kwargs)


def _at_low_priority(work: Callable[..., R], args: Any, kwargs: Any) -> R:
    # On Linux a nice value belongs to a thread, and 0 names the calling one.
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
    return _in_turn(work, args, kwargs)


@cache
def _threads(pid: int) -> Any:
    """The process's real threads; made anew after a fork."""
    return ThreadPool(PLACES)
