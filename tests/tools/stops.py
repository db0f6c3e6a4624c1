"""How this process is told to stop: a signal is only noted, and raised where something is waited for.

A handler that raised would do so anywhere, also where Python swallows it (inside a fork, in a finaliser).
"""

import signal
import time
from types import FrameType


class Stopped(Exception):
    """A signal has asked this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


_noted: list[int] = []
_unheard: list[int] = []


def listen_for_stops() -> None:
    """Takes Ctrl-C, also for a job in the background, termination and the end of the terminal as wishes to stop."""
    signal.signal(signal.SIGINT, _note)
    signal.signal(signal.SIGTERM, _note)
    # nohup means to be left alone.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _note)


def pause(seconds: float) -> None:
    """Sleeps; raises Stopped for a wish to stop that has not been raised yet."""
    time.sleep(seconds)
    if _unheard:
        raise Stopped(_unheard.pop(0))


def _note(number: int, _frame: FrameType | None) -> None:
    # make passes on what its whole group has had already, so only Ctrl-C can ask twice.
    if not _noted or number == signal.SIGINT:
        _unheard.append(number)
    _noted.append(number)
