"""Background tasks and time limits: greenlets where gevent has patched threading, plain threads elsewhere.

The only module beside gunicorn's configuration that knows gevent. Under plain threads (commands and tests) nothing can
be interrupted, so a killed task ends by itself and a time limit is none.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from gevent import Greenlet, GreenletExit, Timeout
from gevent.monkey import is_module_patched


class Task(Protocol):
    """A function that runs beside its caller."""

    def kill(self) -> None:
        """Ends the function wherever it waits, without waiting for it. Idempotent."""


class _GreenletTask:
    def __init__(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._greenlet = Greenlet(_until_killed, function, *args)
        self._greenlet.start()

    def kill(self) -> None:
        self._greenlet.kill(block=False)


class _ThreadTask:
    def __init__(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        threading.Thread(target=function, args=args, daemon=True).start()

    def kill(self) -> None:
        """A thread cannot be interrupted: it ends at its own timeout."""


def spawn(function: Callable[..., None], *args: Any) -> Task:
    """Starts a function beside the caller, which does not wait for it."""
    kind = _GreenletTask if is_module_patched("threading") else _ThreadTask
    return kind(function, args)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises ``TimeoutError`` in the block after so many seconds, wherever it waits; under plain threads never.

    Until the block has ended it is no ``OSError``, which libraries would take for a failure to go on after.
    """
    if not is_module_patched("threading"):
        yield
        return
    with Timeout(max(seconds, 0.0), False):
        yield
        return
    raise TimeoutError


def _until_killed(function: Callable[..., None], *args: Any) -> None:
    try:
        function(*args)
    except GreenletExit:
        # Kept by gevent with its traceback, it would keep everything that the function had open.
        return
