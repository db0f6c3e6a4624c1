"""How this process is told to stop, as exceptions that unwind what it has started."""

import signal
from types import FrameType


def listen_for_stops() -> None:
    """Ctrl-C raises KeyboardInterrupt, also for a job in the background; the others raise SystemExit, once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _stop)
    # nohup means to be left alone.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _stop)


def _stop(number: int, _frame: FrameType | None) -> None:
    # make passes on what its whole group has had already: the same signal twice is one wish.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise SystemExit(128 + number)
