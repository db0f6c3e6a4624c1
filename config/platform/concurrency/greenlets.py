"""Background tasks, time limits and worker threads, on gevent where it has patched threading.

Only this module and gunicorn's configuration import gevent. Plain threads (commands and tests) cannot be interrupted: a
killed task runs to its end, and time limits have no effect.
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

# At 60 sign-ins a second, at most about 120 wait.
QUEUE_SECONDS = 2.0
# The longest that work waits for other work of the same person.
SHARE_SECONDS = 10.0
LOWEST_PRIORITY = 19

P = ParamSpec("P")
R = TypeVar("R")


class Task:
    """A function that runs concurrently with its caller, in a greenlet or a thread."""

    def __init__(self, greenlet: Greenlet | None) -> None:
        self._greenlet = greenlet

    def kill(self) -> None:
        """Interrupts the function where it waits, and returns at once. Idempotent. Threads keep running."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)


def spawn(function: Callable[..., None], *args: Any) -> Task:
    """Starts a function concurrently, in the caller's context."""
    run = copy_context().run
    if is_module_patched("threading"):
        return Task(Greenlet.spawn(run, _until_killed, function, *args))
    threading.Thread(target=run, args=(function, *args), daemon=True).start()
    return Task(None)


def within(seconds: float, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Returns a function's result, or interrupts it after a number of seconds and raises ``TimeoutError``.

    The interruption is not an ``OSError``, which libraries would catch. Plain threads have no limit.
    """
    if not is_module_patched("threading"):
        return function(*args, **kwargs)
    with Timeout(max(seconds, 0.0), False):
        return function(*args, **kwargs)
    # Outside the block, so that the error keeps no reference to the interrupted frames.
    raise TimeoutError


def is_interruptible() -> bool:
    """Returns whether the caller can be interrupted; plain threads cannot."""
    return bool(is_module_patched("threading"))


def run_uninterrupted(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs work in a task of its own, which completes even if the caller is killed, and returns its result.

    For work on behalf of others, such as a batch, and for connection pools, which lose a connection when a wait for it
    is interrupted.
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


def wait_until_idle(seconds: float) -> None:
    """Waits until no other greenlet is ready to run, at most for a number of seconds. Plain threads do not wait."""
    if is_module_patched("threading"):
        with Timeout(seconds, False):
            idle()


class _Share:
    """A lock for the work of one person, and the number of its holders and waiters."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.number = 0


class WorkerThread:
    """A thread of each process for one kind of slow work.

    ``busy`` is the message for callers that time out; ``most_of_a_person`` bounds the work queued for one person.
    """

    def __init__(
        self, busy: str, *, lowest_priority: bool = False, most_of_a_person: int = 8
    ) -> None:
        self._busy = busy
        self._lowest_priority = lowest_priority
        self._most_of_a_person = most_of_a_person
        # The calls that wait or run, and the number that have timed out.
        self.waiting = self.timed_out = 0
        self._turn, self._changing = threading.Lock(), threading.Lock()
        self._shares: dict[Hashable, _Share] = {}
        # By process id: threads do not survive a fork.
        self._pools: dict[int, ThreadPool] = {}

    @contextmanager
    def share_of(self, person: Hashable) -> Iterator[None]:
        """Serializes the work of one person, so that it delays others by at most one call.

        Raises ``ServiceUnavailable`` when too much of it is queued, or after ``SHARE_SECONDS``.
        """
        with self._changing:
            share = self._shares.setdefault(person, _Share())
            share.number += 1
            # Of this moment: others may come while the connection is released.
            is_first, too_many = share.number == 1, share.number > self._most_of_a_person
        try:
            if too_many:
                raise self._no_turn()
            if not is_first:
                release_connection()
            if not share.turn.acquire(timeout=SHARE_SECONDS):
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
        """Runs work off the event loop, one call at a time, and returns its result.

        Raises ``ServiceUnavailable`` when the calls before it take longer than ``QUEUE_SECONDS``.
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
            # Blocks while one call runs and another is queued, so that abandoned calls never reach the thread.
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
            # Linux has a nice value per thread; 0 is the calling one. A flood of sign-ins then delays other requests by
            # milliseconds only. Not for Python code, which would hold the GIL while it waits for the processor.
            os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
        return _outcome(work, *args, **kwargs)

    def _no_turn(self) -> ServiceUnavailable:
        self.timed_out += 1
        return ServiceUnavailable(self._busy, retry_after=2)


sign_ins = WorkerThread(
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
        # gevent would keep the traceback, and with it every resource of the function.
        return
