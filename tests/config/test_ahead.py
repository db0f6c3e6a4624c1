"""What is made before somebody asks for it."""

import json
import subprocess
import sys
from itertools import count
from typing import Any

import pytest

from config.ahead import Ahead
from tests.tools.folders import ROOT


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.config.ahead_taken"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


class TestUnderGevent:
    @pytest.mark.parametrize(
        "what",
        [
            "who_finds_none_makes_his_own",
            "filled_by_a_thread",
            "left_alone_while_more_than_half_are_there",
            "filled_again",
            "loop_made_no_more",
            "each_once",
        ],
    )
    def test_a_thread_keeps_some_ready(self, told, what: str) -> None:
        assert told["many"][what]

    def test_a_fork_has_none_of_its_parents(self, told) -> None:
        assert told["forked"]

    def test_one_that_cannot_be_made_is_told_to_who_asks_and_tried_again(self, told) -> None:
        assert told["failed"] == {"told": True, "filled_later": True}

    def test_where_no_thread_can_begin_each_is_made_until_one_can(self, told) -> None:
        assert told["crowded"] == {"own": True, "filled_later": True}


def test_without_gevent_each_is_made_when_it_is_asked_for() -> None:
    numbers = count()
    ahead = Ahead(lambda: next(numbers), ready=8)
    assert [ahead.take() for _ in range(3)] == [0, 1, 2]
    assert next(numbers) == 3
