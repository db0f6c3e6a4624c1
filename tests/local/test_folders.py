"""The private folder: whose it is, who holds it, and a place for sockets whatever its path."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from tests.local.processes import alive
from tests.tools import Unready
from tests.tools.folders import LONGEST, ROOT, RUNNING_SECONDS, claim, held, is_held, sockets_of

# Takes the folder, says so, and waits; told to stop, it says that and takes its time until its input ends.
HOLDER = """
import sys
from pathlib import Path
from tests.tools.folders import held
with held(Path(sys.argv[1])) as hold:
    hold.note(sys.argv[2])
    print("held", flush=True)
    sys.stdin.read()
"""

# Has a place for sockets, says where, and waits to be killed.
SOCKETS = """
import sys, time
from pathlib import Path
from tests.tools.folders import sockets_of
with sockets_of(Path(sys.argv[1])) as sockets:
    print(sockets, flush=True)
    time.sleep(600)
"""

# Takes the folder, starts a child that does not end with it, says its number, and waits to be killed.
FAMILY = """
import os, signal, sys, time
from pathlib import Path
from tests.tools.children import Program
from tests.tools.folders import held
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
with held(Path(sys.argv[1])):
    program = Program(
        name="c", command=sleep, log=Path(sys.argv[1]) / "log", environ=os.environ, orphaned_by=signal.SIGCONT
    )
    print(program.start().pid, flush=True)
    time.sleep(600)
"""


def holder(folder: Path, state: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), state],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_claimed_folder_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    assert mode(claim(tmp_path / "open")) == mode(claim(tmp_path / "new")) == 0o700


def test_a_folder_of_another_user_is_refused_with_both_names(tmp_path: Path) -> None:
    theirs = Path("/")
    if os.geteuid() == 0:
        theirs = tmp_path
        os.chown(theirs, 65534, -1)
    with pytest.raises(Unready, match=r"was made by \w+ and you are \w+"):
        claim(theirs)


def test_a_folder_is_held_once_and_the_second_names_the_first(tmp_path: Path) -> None:
    with holder(tmp_path, "running") as first:
        with pytest.raises(Unready, match=f"running already .process {first.pid}."), held(tmp_path):
            pass
        assert is_held(tmp_path)


def test_a_run_that_says_where_it_is_is_named_with_its_address(tmp_path: Path) -> None:
    address = "http://127.0.0.1:8001"
    with (
        holder(tmp_path, f"running {address}") as first,
        pytest.raises(Unready, match=f"running already at {address} .process {first.pid}."),
        held(tmp_path),
    ):
        pass


def test_a_killed_holder_holds_no_longer(tmp_path: Path) -> None:
    with holder(tmp_path, "running") as first:
        first.kill()
        first.wait()
        with held(tmp_path):
            assert is_held(tmp_path)
    assert not is_held(tmp_path)


def test_a_start_waits_for_a_run_that_is_stopping(tmp_path: Path) -> None:
    with holder(tmp_path, "stopping") as first:
        second = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path), "running"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        with second:
            assert second.stdout is not None
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(RUNNING_SECONDS + 0.3)
            first.communicate()
            assert second.stdout.readline() == "held\n"


def short(tmp_path: Path) -> Path:
    """A folder whose path does for sockets: pytest's own is too long as soon as a test's name is."""
    folder = Path("/tmp") / f"shell-unit-{os.getpid()}"
    folder.mkdir()
    return folder


def test_sockets_lie_inside_where_the_path_allows(tmp_path: Path) -> None:
    folder = short(tmp_path)
    try:
        (folder / "sockets").mkdir()
        (folder / "sockets" / ".s.PGSQL.5432.lock").touch()
        with sockets_of(folder) as sockets:
            assert sockets == folder / "sockets"
            assert list(sockets.iterdir()) == []
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["Upper", "with space", "x" * LONGEST, "ü", "per%20cent"])
def test_sockets_lie_elsewhere_where_it_does_not(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with sockets_of(folder) as sockets:
        assert len(bytes(sockets)) <= LONGEST
        assert mode(sockets) == 0o700
    assert not sockets.exists()


def test_a_killed_runs_place_for_sockets_is_used_again_but_never_a_copys(tmp_path: Path) -> None:
    folder = tmp_path / "Folder"
    folder.mkdir()
    command = [sys.executable, "-c", SOCKETS, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        left = Path(killed.stdout.readline().strip())
        killed.kill()
    (left / "redis.sock").touch()
    shutil.copytree(folder, tmp_path / "Copy", symlinks=True)
    with sockets_of(tmp_path / "Copy") as copied:
        assert copied != left
    assert (left / "redis.sock").exists()
    with sockets_of(folder) as again:
        assert again == left
        assert not (again / "redis.sock").exists()
    assert not left.exists()


def test_a_link_in_place_of_the_sockets_is_replaced_and_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "Folder"
    folder.mkdir()
    with sockets_of(folder) as sockets:
        pass
    (folder / "precious").touch()
    sockets.symlink_to(folder)
    with sockets_of(folder) as sockets:
        assert sockets.resolve() != folder
    assert (folder / "precious").exists()


def test_children_of_a_killed_process_are_waited_for(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None
        child = int(killed.stdout.readline())
        killed.kill()
    assert is_held(tmp_path)
    Timer(0.5, os.kill, [child, signal.SIGKILL]).start()
    with held(tmp_path):
        assert not alive(child)
