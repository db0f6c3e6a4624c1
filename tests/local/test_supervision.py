"""What ends while it should run: the vital takes everything with it, the rest is started again."""

import itertools
import os
import sys
from pathlib import Path

import pytest

from tests.local.processes import until
from tests.tools import Unready
from tests.tools.children import Child, Program
from tests.tools.supervision import Keeper, watch


def program(log: Path, code: str) -> Program:
    command = [sys.executable, "-c", code]
    return Program(name="worker", command=command, log=log, environ=os.environ)


def test_the_end_of_a_vital_child_is_told_and_ends_the_watch(tmp_path: Path) -> None:
    lives = program(tmp_path / "a", "import time; time.sleep(600)").start()
    dies = program(tmp_path / "b", "print('out of memory'); raise SystemExit(9)").start()
    try:
        with pytest.raises(Unready, match=r"(?s)worker ended with 9\..*\| out of memory.*stopped"):
            watch([lives, dies], [])
    finally:
        lives.stop()


def test_one_that_ends_is_started_again_after_a_pause_that_grows(tmp_path: Path) -> None:
    said: list[str] = []
    code = "print('no database'); raise SystemExit(1)"
    keeper = Keeper(program(tmp_path / "log", code), said.append, first_pause=0.05)
    starts: list[Child] = []

    def three_more_starts() -> bool:
        keeper.look()
        if keeper.child not in starts:
            starts.append(keeper.child)
        return len(starts) == 4

    until(three_more_starts)
    keeper.stop()
    assert len({child.pid for child in starts}) == 4
    deaths = [text for text in said if "ended with 1" in text]
    assert all("| no database" in text for text in deaths)
    pauses = [second.started - first.started for first, second in itertools.pairwise(starts)]
    assert [pause >= least for pause, least in zip(pauses, (0.05, 0.1, 0.2), strict=True)] == [
        True
    ] * 3


def test_one_that_runs_is_left_alone(tmp_path: Path) -> None:
    said: list[str] = []
    keeper = Keeper(program(tmp_path / "log", "import time; time.sleep(600)"), said.append)
    pid = keeper.child.pid
    keeper.look()
    assert (keeper.child.pid, keeper.child.ended, said) == (pid, None, [])
    keeper.stop()
    assert keeper.child.ended is not None
