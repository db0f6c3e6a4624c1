"""Watching over what runs: some programs are started again when they end, the others take everything with them."""

import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from tests.tools import Unready
from tests.tools.children import Child, Program
from tests.tools.stops import pause

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
# A program that ran this long was well; the pause before its next start is short again.
WELL_SECONDS = 60.0


class Keeper:
    """Keeps a program running: each time it ends it is reported and, after a growing pause, started again."""

    def __init__(
        self, program: Program, say: Callable[[str], None], *, first_pause: float = FIRST_PAUSE
    ) -> None:
        self.child = program.start()
        self._program = program
        self._say = say
        self._first_pause = self._pause = first_pause
        self._start_at: float | None = None

    def look(self) -> None:
        """Does what is due now."""
        now = time.monotonic()
        if self._start_at is not None:
            if now >= self._start_at:
                self._start_at = None
                self.child = self._program.start()
                self._say(f"{self._program.name} is started again")
        elif self.child.ended is not None:
            if now - self.child.started > WELL_SECONDS:
                self._pause = self._first_pause
            self._start_at = now + self._pause
            self._say(f"{self.child.obituary()}\nIt is started again in {self._pause:.0f} s.")
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def stop(self) -> None:
        """Stops the program for good."""
        self.child.stop()


def watch(vital: Sequence[Child], kept: Sequence[Keeper], *, every: float = 0.2) -> NoReturn:
    """Runs until a vital child ends, which is Unready with the end of its log, or a signal raises."""
    while True:
        for child in vital:
            if child.ended is not None:
                raise Unready(
                    f"{child.obituary()}\nNothing works without it, so everything is stopped."
                )
        for keeper in kept:
            keeper.look()
        pause(every)
