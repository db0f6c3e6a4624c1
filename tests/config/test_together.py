"""Questions that wait for each other and go together, and none of which fails for its company."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Lock
from time import monotonic, sleep
from typing import Any
from unittest import mock

import pytest

from config.together import Together
from tests.tools.folders import ROOT

SECONDS = 20.0


class Refused(Exception):
    pass


class Oracle:
    """Doubles numbers, a group at a time, and keeps each group until it is told to answer."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.may_answer = Event()
        self._lock = Lock()

    def __call__(self, asked: Sequence[int]) -> list[int | Exception]:
        with self._lock:
            self.groups.append(list(asked))
        assert self.may_answer.wait(SECONDS)
        if -1 in asked:
            raise Refused
        return [ValueError(number) if number == 0 else 2 * number for number in asked]


class Room:
    """A few people who ask at the same time."""

    def __init__(self, oracle: Oracle, together: Together[int, int], pool: ThreadPoolExecutor):
        self.oracle, self.together = oracle, together
        self._pool = pool

    def ask(self, *numbers: int) -> list[Future[int]]:
        """Each is waiting or on its way when this returns."""
        asking = []
        for number in numbers:
            before = self._heard_of()
            asking.append(self._pool.submit(self.together, number))
            self.until(lambda before=before: self._heard_of() > before)
        return asking

    def until(self, holds: Callable[[], bool]) -> None:
        give_up = monotonic() + SECONDS
        while not holds():
            assert monotonic() < give_up
            sleep(0.001)

    def _heard_of(self) -> int:
        return len(self.together._waiting) + sum(map(len, self.oracle.groups))


@pytest.fixture
def make():
    with ThreadPoolExecutor(64) as pool:
        oracles = []

        def make(*, undone: bool = True, most: int = 32, patience: float = SECONDS) -> Room:
            oracle = Oracle()
            oracles.append(oracle)
            together = Together(oracle, undone=lambda _: undone, most=most, patience=patience)
            return Room(oracle, together, pool)

        yield make
        for oracle in oracles:
            oracle.may_answer.set()


def _told_by(module: str) -> Any:
    """What a process of its own says, in which threads are greenlets."""
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def test_who_comes_alone_goes_alone(make) -> None:
    room = make()
    room.oracle.may_answer.set()
    assert [room.together(number) for number in (1, 2, 3)] == [2, 4, 6]
    assert room.oracle.groups == [[1], [2], [3]]


def test_who_comes_meanwhile_goes_together_and_each_gets_its_own_answer(make) -> None:
    room = make()
    asking = room.ask(1, 2, 3, 4)
    room.oracle.may_answer.set()
    assert [each.result(SECONDS) for each in asking] == [2, 4, 6, 8]
    assert room.oracle.groups == [[1], [2, 3, 4]]


def test_no_group_is_larger_than_it_may_be(make) -> None:
    room = make(most=2)
    asking = room.ask(1, 2, 3, 4, 5, 6)
    room.oracle.may_answer.set()
    assert [each.result(SECONDS) for each in asking] == [2, 4, 6, 8, 10, 12]
    assert room.oracle.groups == [[1], [2, 3], [4, 5], [6]]


def test_an_answer_that_is_an_error_is_that_of_one(make) -> None:
    room = make()
    asking = room.ask(1, 2, 0, 3)
    room.oracle.may_answer.set()
    with pytest.raises(ValueError):
        asking.pop(2).result(SECONDS)
    assert [each.result(SECONDS) for each in asking] == [2, 4, 6]


def test_a_question_that_cannot_be_answered_costs_the_others_nothing(make) -> None:
    room = make()
    asking = room.ask(1, 2, -1, 3)
    room.oracle.may_answer.set()
    with pytest.raises(Refused):
        asking.pop(2).result(SECONDS)
    assert [each.result(SECONDS) for each in asking] == [2, 4, 6]
    assert room.oracle.groups[:2] == [[1], [2, -1, 3]]
    assert sorted(room.oracle.groups[2:]) == [[-1], [2], [3]]


def test_where_something_may_have_been_done_nothing_is_asked_twice(make) -> None:
    room = make(undone=False)
    asking = room.ask(1, 2, -1, 3)
    room.oracle.may_answer.set()
    assert asking[0].result(SECONDS) == 2
    for each in asking[1:]:
        with pytest.raises(Refused):
            each.result(SECONDS)
    assert room.oracle.groups == [[1], [2, -1, 3]]


def test_who_has_had_company_lets_others_come_first(make) -> None:
    room = make()
    asking = room.ask(1, 2, 3)
    room.oracle.may_answer.set()
    assert [each.result(SECONDS) for each in asking] == [2, 4, 6]
    with mock.patch("config.together.lull") as let_come:
        let_come.side_effect = lambda: asking.extend(room.ask(5, 6))
        assert room.together(4) == 8
        assert room.oracle.groups[2:] == [[4, 5, 6]]
        assert [each.result(SECONDS) for each in asking[3:]] == [10, 12]
        # And goes at once again when nobody did.
        let_come.side_effect = None
        assert [room.together(7), room.together(8)] == [14, 16]
    assert let_come.call_count == 2
    assert room.oracle.groups[3:] == [[7], [8]]


def test_others_come_first_for_as_long_as_they_have_anything_to_do_and_a_moment_at_most() -> None:
    assert _told_by("tests.config.lulls") == {
        "nothing to do": ["lull", "a moment"],
        "bytes to read": ["read", "read", "lull", "a moment"],
        "never done": ["a moment", "lull"],
    }


def test_nobody_waits_long_behind_one_that_takes_long(make) -> None:
    room = make(patience=0.02)
    first = room.ask(1)
    (second,) = room.ask(2)
    room.until(lambda: [2] in room.oracle.groups)
    assert not first[0].done()
    third = room.ask(3)
    room.oracle.may_answer.set()
    assert [each.result(SECONDS) for each in (*first, second, *third)] == [2, 4, 6]


def test_whoever_is_killed_takes_nobody_along() -> None:
    """As greenlets are when a process has to end; threads cannot be, so this is told by a process with greenlets."""
    assert _told_by("tests.config.killed_together") == {
        "letting others come": [2, "GreenletExit", 6, 8],
        "waiting": [2, "GreenletExit", 6, 8],
        "just told to go": [2, "GreenletExit", 6, 8],
        "on the way for others": [2, "GreenletExit", "Unanswered", "Unanswered"],
    }


def test_many_at_once_all_get_their_own(make) -> None:
    room = make(patience=0.005, most=4)
    room.oracle.may_answer.set()
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(room.together, range(1, 2001))) == [
            2 * number for number in range(1, 2001)
        ]
    assert room.together._away == 0
    assert max(map(len, room.oracle.groups)) <= 4
