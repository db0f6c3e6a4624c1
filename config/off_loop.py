"""A gate for work that would stop everything else: one at a time per process, off the loop, at low priority.

Under gevent such work (argon2: about 20 ms of C that gives up the interpreter lock but not the greenlet)
runs on one real thread whose nice value is 19, so that a flood of sign-ins leaves other answers as quick as
they were. Under plain threads and in commands it is called directly.
"""

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, ParamSpec, TypeVar

from gevent.monkey import is_module_patched
from gevent.threadpool import ThreadPool

from config.problems import ServiceUnavailable

# Longer than any queue that can still be worth waiting for: at 60 a second this is 120 sign-ins.
WAIT_SECONDS = 2.0
LOWEST_PRIORITY = 19

P = ParamSpec("P")
R = TypeVar("R")

_gate = threading.BoundedSemaphore(1)


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
            result: R = _thread(os.getpid()).apply(work, args, kwargs)
            return result
        return work(*args, **kwargs)
    finally:
        _gate.release()


@cache
def _thread(pid: int) -> Any:
    """The process's one real thread; made anew after a fork."""
    pool = ThreadPool(1)
    pool.apply(_lower_priority)
    return pool


def _lower_priority() -> None:
    # On Linux a nice value belongs to a thread, and 0 names the calling one.
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
