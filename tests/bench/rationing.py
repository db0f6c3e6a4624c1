"""Holding processes to a share of a core, so that a machine of few cores shows what one with more would do."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread

# The interval of checks, and the CPU seconds that a stopped process saves up before it goes on.
EVERY_SECONDS = 0.001
SAVED_UP = 0.004


@contextmanager
def rationed(pids: Sequence[int], share: float) -> Iterator[None]:
    """For as long, each has this share of a second of CPU time in every second, and is stopped when it has had it.

    What one has not come to use, as others were computing, it may use within the next 20 ms or so: by the clock alone,
    whoever competes for the cores would get less than its share, and two of them less than one.
    """
    over = Event()
    thread = Thread(target=_ration, args=([_Ration(pid, share) for pid in pids], over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for pid in pids:
            _send(pid, signal.SIGCONT)


class _Ration:
    def __init__(self, pid: int, share: float) -> None:
        self._pid, self._share = pid, share
        # As clock_getcpuclockid() of the C library has it.
        self._clock = (~pid << 3) | 2
        self._left, self._is_stopped = 0.0, False
        self._spent = 0.0
        self._at, self._spent = time.monotonic(), self._cpu()

    def look(self) -> None:
        """Stops it where it has had its share; lets it go on where it has saved up again."""
        at, spent = time.monotonic(), self._cpu()
        self._left += (at - self._at) * self._share - (spent - self._spent)
        # More is not kept, or a pause would be followed by a burst.
        self._left = min(self._left, 2 * SAVED_UP)
        self._at, self._spent = at, spent
        if self._is_stopped != (self._left < (SAVED_UP if self._is_stopped else 0)):
            self._is_stopped = not self._is_stopped
            _send(self._pid, signal.SIGSTOP if self._is_stopped else signal.SIGCONT)

    def _cpu(self) -> float:
        with suppress(OSError):
            return time.clock_gettime(self._clock)
        # It has ended.
        return self._spent


def _ration(rations: Sequence[_Ration], over: Event) -> None:
    while not over.wait(EVERY_SECONDS):
        for each in rations:
            each.look()


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
