"""Signals that end this process: noted by the handler, raised where the process waits.

A handler that raised could do so inside a fork or a finaliser, where Python swallows it.
"""

import signal
import time
from types import FrameType


class Stopped(Exception):
    """A signal that asks this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


_noted: list[int] = []
_unraised: list[int] = []


def listen_for_stops() -> None:
    """Treats Ctrl-C, also in a background job, termination and the end of the terminal as stops."""
    signal.signal(signal.SIGINT, _note)
    signal.signal(signal.SIGTERM, _note)
    # nohup ignores this signal, and that is respected.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _note)


def pause(seconds: float) -> None:
    """Sleeps; raises Stopped once for each stop."""
    time.sleep(seconds)
    if _unraised:
        raise Stopped(_unraised.pop(0))


def _note(number: int, _frame: FrameType | None) -> None:
    # make repeats the signal that its whole group has received, so only Ctrl-C counts twice.
    if not _noted or number == signal.SIGINT:
        _unraised.append(number)
    _noted.append(number)
