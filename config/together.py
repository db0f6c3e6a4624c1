"""Questions that come at the same time, asked as one.

What a small question costs is mostly the way there and back and, where it writes, a commit. While one of a kind is on
its way, others of that kind wait for it and then go together; whoever comes alone waits for nobody. Where the last did
not go alone, the next waits until the process has nothing else to do, for a moment at most: what keeps it busy brings
others here. So the more a process has to do, the less each costs.
"""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from time import monotonic, sleep
from typing import Any, Generic, TypeVar

from gevent.hub import Waiter, get_hub
from gevent.monkey import is_module_patched

# A question that has been away for longer than this may be waiting for a lock, and nobody else waits behind it.
PATIENCE_SECONDS = 0.05
MOST = 32
# The longest that whoever could go waits for company.
MOMENT_SECONDS = 0.002

Q = TypeVar("Q")
A = TypeVar("A")


class Unanswered(ConnectionError):
    """Whoever asked for a group was ended on the way: nobody knows whether anything has been done."""


class Together(Generic[Q, A]):
    """Called with a question by many threads or greenlets at once, gives each its answer.

    ``ask`` gives the answers to some questions in their order, or raises. What it raises all of them get; where
    ``undone`` says that with this error nothing has been done for anyone, each is asked again by itself, so that
    no question fails because of its company. An answer that is an exception is raised for the one who asked.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[Q]], Sequence[A | Exception]],
        *,
        undone: Callable[[Exception], bool],
        most: int = MOST,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._ask = ask
        self._undone = undone
        self._most = most
        self._patience = patience
        self._lock = Lock()
        self._waiting: deque[_Place] = deque()
        # How many groups are on their way or about to be, when the last of them left, and whether it had company.
        self._away = 0
        self._left_at = 0.0
        self._crowded = False

    def __call__(self, question: Q) -> A:
        place = _Place(question)
        with self._lock:
            waits = self._away > 0 and monotonic() - self._left_at < self._patience
            gathers = self._crowded and not self._away
            if waits:
                place.turn = Lock()
                place.turn.acquire()
                self._waiting.append(place)
            elif gathers:
                self._away = 1
                self._left_at = monotonic()
            else:
                group = self._leave(place)
        if waits:
            group = self._wait(place)
        elif gathers:
            group = self._gather(place)
        if group:
            self._go(group)
        if place.alone:
            (place.answer,) = self._ask([question])
        if place.answer is _NONE:
            raise Unanswered
        if isinstance(place.answer, Exception):
            raise place.answer
        answer: A = place.answer
        return answer

    def _leave(self, first: "_Place") -> list["_Place"]:
        """Who goes now: ``first`` and those who wait. Under the lock."""
        group = [first]
        while self._waiting and len(group) < self._most:
            group.append(self._waiting.popleft())
        self._away += 1
        self._left_at = monotonic()
        self._crowded = len(group) > 1
        return group

    def _gather(self, first: "_Place") -> list["_Place"]:
        """Lets others do what they can, and gives who has come to ask as well."""
        try:
            lull()
        except BaseException:
            with self._lock:
                self._away -= 1
                self._send_next()
            raise
        with self._lock:
            self._away -= 1
            return self._leave(first)

    def _wait(self, place: "_Place") -> list["_Place"]:
        """Until there is an answer, or it is one's turn to go for those who wait; gives with whom."""
        try:
            if not place.turn.acquire(timeout=self._patience):
                with self._lock:
                    if place in self._waiting:
                        self._waiting.remove(place)
                        return self._leave(place)
                # It has gone with others.
                place.turn.acquire()
        except BaseException:
            self._give_up(place)
            raise
        # It is in there itself, and would be garbage that has to be found.
        group, place.group = place.group, []
        return group

    def _go(self, group: list["_Place"]) -> None:
        """Asks for a group, of which the first is who does this, and sends the next on its way."""
        try:
            answers: Sequence[Any] = self._ask([place.question for place in group])
            for place, answer in zip(group, answers, strict=True):
                place.answer = answer
        except Exception as error:  # noqa: BLE001 - whatever it is, each is told
            alone = len(group) > 1 and self._undone(error)
            for place in group:
                place.answer, place.alone = error, alone
        finally:
            # Also where this thread or greenlet is ended just here.
            with self._lock:
                self._away -= 1
                self._send_next()
            for place in group[1:]:
                place.turn.release()

    def _give_up(self, place: "_Place") -> None:
        """Whoever waited is ended. If it was just told to go, the others of its group are not left behind."""
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
            elif place.group:
                self._away -= 1
                self._waiting.extendleft(reversed(place.group[1:]))
                self._send_next()

    def _send_next(self) -> None:
        """Has the first of those who wait go with the others. Under the lock."""
        if self._waiting:
            following = self._waiting.popleft()
            following.group = self._leave(following)
            following.turn.release()


def lull() -> None:
    """Returns when there is nothing else to do, after a moment at the latest. Threads have only a turn each."""
    if not is_module_patched("time"):
        sleep(0)
        return
    hub = get_hub()
    waiter, idle, timer = Waiter(hub), hub.loop.idle(), hub.loop.timer(MOMENT_SECONDS)
    idle.start(waiter.switch, None)
    timer.start(waiter.switch, None)
    try:
        waiter.get()
    finally:
        idle.stop()
        idle.close()
        timer.close()


class _Place:
    """One who asks: the answer or an error, and whether to ask again alone."""

    __slots__ = ("alone", "answer", "group", "question", "turn")

    turn: Any

    def __init__(self, question: Any) -> None:
        self.question = question
        self.group: list[_Place] = []
        self.answer: Any = _NONE
        self.alone = False


# Of a group whose first was ended.
_NONE = object()
