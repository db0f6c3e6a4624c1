"""Workers share clients evenly: of those that could take a connection, one with the fewest does.

All of them are told of a new connection, and whoever is quicker takes it. That is mostly the one that is awake already:
one worker would come to serve nearly everybody who keeps a connection, up to all that one core can do, beside others
that have nothing to do. So a worker that has more connections than another lets the others go first, for a moment.
"""

import mmap
from array import array
from time import monotonic
from typing import Any, ClassVar

from gevent.server import StreamServer
from gunicorn.workers import ggevent

# How long another is given. It is awake within a fraction of that, unless it is busy, and then nobody waits for it.
MOMENT_SECONDS = 0.002
# For how long nobody is let go first after that has been in vain once, and at most.
FIRST_SECONDS, LONGEST_SECONDS = MOMENT_SECONDS / 16, 0.064
# In place of a number of connections: there is no such worker, or it takes no more of them.
ABSENT, LEAVING = -1, -2


class Shares:
    """How many connections each worker has, for all of them to see; each says its own. Made before they are forked.

    Places are given and taken back by who starts the workers. A worker for whom there is none shares with nobody.
    """

    def __init__(self, places: int) -> None:
        # Shared memory, which ends with the last process that has it.
        self._counts = memoryview(mmap.mmap(-1, 4 * places)).cast("i")
        self._counts[:] = memoryview(array("i", [ABSENT] * places))

    def take(self) -> int | None:
        """A place for a worker that is about to be started and has no connections yet."""
        for place, count in enumerate(self._counts):
            if count == ABSENT:
                self._counts[place] = 0
                return place
        return None

    def give_back(self, place: int | None) -> None:
        """The worker that had this place has ended."""
        if place is not None:
            self._counts[place] = ABSENT

    def leave(self, place: int | None) -> None:
        """Nobody is to wait any more for the worker at this place: it takes no more connections."""
        if place is not None:
            self._counts[place] = LEAVING

    def say(self, place: int | None, connections: int) -> None:
        if place is not None and self._counts[place] != LEAVING:
            self._counts[place] = connections

    def is_ahead(self, place: int | None) -> bool:
        """Whether it has more than another has."""
        return place is not None and any(0 <= each < self._counts[place] for each in self._counts)


class Accepting(StreamServer):  # type: ignore[misc]  # gevent has no types
    """gevent's server of a worker, which lets others go first who have fewer connections.

    Where that was in vain they are busy, or stuck, and it does so less often the more often it was: a moment for each
    of those that wait in line would be more than the line can bear.
    """

    # The shares, and the place of the worker that this process is.
    among: ClassVar[tuple[Shares, int | None] | None] = None
    # Each is counted before the next one is looked at.
    max_accept = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._insists = False
        self._has_taken = False
        # Until when nobody is let go first, and for how long not after the next time in vain.
        self._goes_first_until = 0.0
        self._in_vain = FIRST_SECONDS

    def do_read(self) -> Any:
        if not self._insists and self._is_ahead() and monotonic() >= self._goes_first_until:
            self.stop_accepting()
            self._timer = self.loop.timer(MOMENT_SECONDS)
            self._timer.start(self._after_a_moment)
            return None
        taken = super().do_read()
        self._has_taken = taken is not None
        return taken

    def _is_ahead(self) -> bool:
        if self.among is None:
            return False
        shares, place = self.among
        return shares.is_ahead(place)

    def _after_a_moment(self) -> None:
        """Takes the connection if it is still there."""
        if not self.started:
            return
        self.start_accepting()
        was_in_vain = self._is_ahead()
        self._insists, self._has_taken = True, False
        try:
            self._do_read()
        finally:
            self._insists = False
        if was_in_vain and self._has_taken:
            self._goes_first_until = monotonic() + self._in_vain
            self._in_vain = min(2 * self._in_vain, LONGEST_SECONDS)
        else:
            self._in_vain = FIRST_SECONDS


def install() -> None:
    """From here on gunicorn's workers accept like this."""
    ggevent.StreamServer = Accepting
