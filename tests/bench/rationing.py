"""Holding processes to a share of a core, so that a machine of few cores shows what one with more would do."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread

PERIOD_SECONDS = 0.02


@contextmanager
def rationed(pids: Sequence[int], share: float) -> Iterator[None]:
    """For as long, each may compute for this share of every 20 ms and is stopped for the rest."""
    over = Event()
    thread = Thread(target=_ration, args=(pids, share, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _send(pids, signal.SIGCONT)


def _ration(pids: Sequence[int], share: float, over: Event) -> None:
    while not over.wait(PERIOD_SECONDS * share):
        _send(pids, signal.SIGSTOP)
        over.wait(PERIOD_SECONDS * (1 - share))
        _send(pids, signal.SIGCONT)


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
