"""Background tasks, time limits and threads for slow work: on gevent where it has patched threading, else on threads.

The only module beside gunicorn's configuration that knows gevent. Under plain threads (commands and tests) nothing can
be interrupted, so a killed task ends by itself and a time limit is none.
"""

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar, cast

from gevent import Greenlet, GreenletExit, Timeout, idle
from gevent.monkey import is_module_patched
from gevent.threadpool import ThreadPool

from config.platform.db.connections import release_connection
from config.platform.problems.problem import ServiceUnavailable

# About 120 sign-ins wait at most, at 60 a second.
QUEUE_SECONDS = 2.0
# How long a person's work waits for other work of theirs.
SHARE_SECONDS = 10.0
LOWEST_PRIORITY = 19

P = ParamSpec("P")
R = TypeVar("R")


class Task:
    """A function that runs concurrently with its caller, in a greenlet or else in a thread."""

    def __init__(self, greenlet: Greenlet | None) -> None:
        self._greenlet = greenlet

    def kill(self) -> None:
        """Ends the function wherever it waits, without waiting for it. Idempotent. A thread ends at its own timeout."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)


def spawn(function: Callable[..., None], *args: Any) -> Task:
    """Starts a function concurrently with the caller, which does not wait for it, and in its context."""
    run = copy_context().run
    if is_module_patched("threading"):
        return Task(Greenlet.spawn(run, _until_killed, function, *args))
    threading.Thread(target=run, args=(function, *args), daemon=True).start()
    return Task(None)


def within(seconds: float, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Returns a function's result, or raises ``TimeoutError`` after so many seconds, wherever it waits.

    The function itself sees no ``OSError``, which libraries would handle and continue. Plain threads have no limit.
    """
    if not is_module_patched("threading"):
        return function(*args, **kwargs)
    with Timeout(max(seconds, 0.0), False):
        return function(*args, **kwargs)
    # Outside the block, so that the error keeps no reference to the interrupted frames.
    raise TimeoutError


def is_interruptible() -> bool:
    """Whether a wait of the caller may be interrupted: plain threads cannot be."""
    return bool(is_module_patched("threading"))


def run_whole(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Returns the result of work that nothing interrupts: its caller may leave or be killed, and the work goes on.

    For work on behalf of others, such as a batch, and for a pool of connections, which lends one for ever to a wait
    that was interrupted. Plain threads cannot be interrupted.
    """
    if not is_module_patched("threading"):
        return work(*args, **kwargs)
    run = copy_context().run
    result, error = Greenlet.spawn(run, _outcome, work, *args, **kwargs).get()
    if error is not None:
        raise error
    return cast("R", result)


def _outcome(
    function: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[Any, Exception | None]:
    try:
        return function(*args, **kwargs), None
    except Exception as error:  # noqa: BLE001 - raised again for the caller; gevent would print it
        return None, error


def lull(seconds: float) -> None:
    """Waits until no other greenlet has anything to do, for so many seconds at most. Plain threads do not wait."""
    if is_module_patched("threading"):
        with Timeout(seconds, False):
            idle()


class _Share:
    """The work of one person on a thread: one piece at a time, and the number under way and waiting."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.number = 0


class Aside:
    """One thread of each process for one kind of slow work, which no other kind waits for.

    ``busy`` is what a caller reads whose turn does not come in time. Of one person so many pieces of work may wait.
    """

    def __init__(
        self, busy: str, *, lowest_priority: bool = False, most_of_a_person: int = 8
    ) -> None:
        self._busy = busy
        self._lowest_priority = lowest_priority
        self._most_of_a_person = most_of_a_person
        # Who waits or is served now, and how many have waited in vain.
        self.waiting = self.in_vain = 0
        self._turn, self._changing = threading.Lock(), threading.Lock()
        self._shares: dict[Hashable, _Share] = {}
        # By process: a fork needs another.
        self._pools: dict[int, ThreadPool] = {}

    @contextmanager
    def share_of(self, person: Hashable) -> Iterator[None]:
        """Waits for other work of this person, so that others wait for one piece of it at most.

        Raises ``ServiceUnavailable`` when too much of theirs waits already, or for longer than ``SHARE_SECONDS``.
        """
        with self._changing:
            share = self._shares.setdefault(person, _Share())
            share.number += 1
        try:
            if share.number > 1:
                release_connection()
            too_many = share.number > self._most_of_a_person
            if too_many or not share.turn.acquire(timeout=SHARE_SECONDS):
                raise self._no_turn()
            try:
                yield
            finally:
                share.turn.release()
        finally:
            with self._changing:
                share.number -= 1
                if not share.number:
                    del self._shares[person]

    def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs work off the event loop, one call at a time; the loop goes on every few ms, also beside Python code.

        Returns the result of the work, or raises its error, or ``ServiceUnavailable`` when the calls before it take
        longer than ``QUEUE_SECONDS``.
        """
        self.waiting += 1
        try:
            if is_module_patched("threading"):
                return self._on_thread(work, *args, **kwargs)
            if not self._turn.acquire(timeout=QUEUE_SECONDS):
                raise self._no_turn()
            try:
                return work(*args, **kwargs)
            finally:
                self._turn.release()
        finally:
            self.waiting -= 1

    def _on_thread(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            # Waits while one call runs and another is next, so that callers who leave put no load on the thread.
            spawn = self._pool().spawn
            pending = within(QUEUE_SECONDS, spawn, self._outcome, work, *args, **kwargs)
        except TimeoutError:
            raise self._no_turn() from None
        result, error = pending.get()
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _pool(self) -> ThreadPool:
        pool = self._pools.get(os.getpid())
        if pool is None:
            pool = self._pools[os.getpid()] = ThreadPool(1)
        return pool

    def _outcome(
        self, work: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> tuple[Any, Exception | None]:
        if self._lowest_priority:
            # Linux keeps a nice value per thread; 0 names the calling one. A flood of sign-ins then delays other
            # answers by milliseconds only. Not for Python code: a thread that waits for the processor while it holds
            # the interpreter would stop all others.
            os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
        return _outcome(work, *args, **kwargs)

    def _no_turn(self) -> ServiceUnavailable:
        self.in_vain += 1
        return ServiceUnavailable(self._busy, retry_after=2)


sign_ins = Aside(
    "Many people are signing in just now. Please try again in a moment.", lowest_priority=True
)


def run_exclusively(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs slow C code (argon2: 20 ms) off the event loop, one call at a time per process and at the lowest priority.

    Raises ``ServiceUnavailable`` when the calls before it take longer than ``QUEUE_SECONDS``.
    """
    return sign_ins.run(work, *args, **kwargs)


def _until_killed(function: Callable[..., None], *args: Any) -> None:
    try:
        function(*args)
    except GreenletExit:
        # gevent would keep the error with its traceback, and so everything that the function had open.
        return
