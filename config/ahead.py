"""Things that are made before a request needs one, where making them takes long and needs nothing of it.

Under gevent a process keeps some ready. When half of them are gone a real thread makes new ones, which must be work
that gives up the interpreter lock; who finds none makes his own. Under plain threads and in commands, where nobody
waits for the next request, each is made when it is asked for.
"""

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from gevent.monkey import get_original, is_module_patched

T = TypeVar("T")


class Ahead(Generic[T]):
    """What ``make`` gives, at most ``ready`` of them beforehand; each is given out once."""

    def __init__(self, make: Callable[[], T], *, ready: int) -> None:
        self._make = make
        self._most = ready
        self._ready: deque[T] = deque()
        self._filling = False
        # Of two processes each would give out what was ready in the one.
        os.register_at_fork(after_in_child=self._begin_anew)

    def take(self) -> T:
        if not is_module_patched("threading"):
            return self._make()
        if len(self._ready) <= self._most // 2 + 1 and not self._filling:
            self._filling = True
            try:
                get_original("_thread", "start_new_thread")(self._fill, ())
            except RuntimeError:
                # No more threads just now.
                self._filling = False
        # Only the loop takes, so that what is there does not go meanwhile.
        return self._ready.popleft() if self._ready else self._make()

    def _fill(self) -> None:
        # What fails here fails for who finds none as well, and is told there.
        with suppress(Exception):
            while len(self._ready) < self._most:
                self._ready.append(self._make())
        self._filling = False

    def _begin_anew(self) -> None:
        self._ready.clear()
        self._filling = False
