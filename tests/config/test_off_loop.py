"""Slow work, one at a time per process."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from config import off_loop as room
from config.api.problems import ServiceUnavailable
from config.off_loop import TOGETHER, off_loop
from tests.tools.folders import ROOT

SECONDS = 20.0


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.config.off_loop_asked"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


class TestUnderGevent:
    def test_one_is_done_at_a_time_in_turn_and_each_gets_its_own(self, told) -> None:
        many = told["many"]
        assert many["answers"] == [2 * number for number in range(12)]
        assert many["order"] == list(range(12))
        assert many["most_at_once"] == 1

    def test_while_many_wait_several_are_given_back_at_once(self, told) -> None:
        when = told["many"]["done_when_told"]
        assert all(done >= TOGETHER for done in when[:TOGETHER])
        assert all(done >= 2 * TOGETHER for done in when[TOGETHER : 2 * TOGETHER])

    def test_it_runs_at_the_lowest_priority_and_the_loop_does_not(self, told) -> None:
        assert told["alone"]["nice"] == room.LOWEST_PRIORITY
        assert told["alone"]["nice_of_loop"] < room.LOWEST_PRIORITY

    def test_what_it_raises_is_raised_for_who_asked(self, told) -> None:
        assert told["alone"]["raised"] == "-1"

    def test_nothing_holds_on_to_what_it_was_done_with(self, told) -> None:
        assert told["gone"] == {"done": True, "went wrong": True, "left": True}

    def test_who_waits_too_long_is_told_to_come_later_and_nothing_is_done_for_who_has_left(
        self, told
    ) -> None:
        assert told["left"] == {"told": "2", "first": 2, "done": [1]}


def test_without_gevent_whoever_asks_does_it_himself_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "WAIT_SECONDS", 0.05)
    begun, may_end = Event(), Event()

    def slow() -> str:
        begun.set()
        assert may_end.wait(SECONDS)
        return "done"

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(off_loop, slow)
        assert begun.wait(SECONDS)
        with pytest.raises(ServiceUnavailable) as refusal:
            off_loop(str)
        may_end.set()
        assert first.result(SECONDS) == "done"
    assert refusal.value.headers["Retry-After"] == "2"
    assert off_loop(int, "7") == 7
