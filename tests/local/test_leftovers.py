"""What a killed run left: ours is ended, anybody else's is not touched."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.tools.leftovers import end_leftovers, marked

SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]


def start(environ: dict[str, str], cwd: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(SLEEP, env=environ, cwd=cwd, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_process_with_the_mark_of_the_folder_is_ended(tmp_path: Path) -> None:
    with start(marked(dict(os.environ), tmp_path), tmp_path) as left:
        end_leftovers(tmp_path, patience=0.2)
        assert left.wait(10) == -signal.SIGKILL


def test_a_stranger_in_the_folder_and_one_of_another_folder_live_on(tmp_path: Path) -> None:
    other = marked(dict(os.environ), tmp_path / "other")
    with start(dict(os.environ), tmp_path) as stranger, start(other, tmp_path) as neighbour:
        try:
            end_leftovers(tmp_path, patience=0.2)
            assert (stranger.poll(), neighbour.poll()) == (None, None)
        finally:
            stranger.kill()
            neighbour.kill()
