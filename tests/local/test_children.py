"""Programs as children: how they end, and that they never outlive who started them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.processes import alive
from tests.tools import Unready
from tests.tools.children import Child, Program
from tests.tools.folders import ROOT
from tests.waiting import eventually

SLEEP = "import time; time.sleep(600)"
# In short sleeps: a signal just before a long one is heard after it.
LISTEN = "import time\nwhile True: time.sleep(0.05)"
# Starts a child of its own, says its number, and hears no polite request.
STUBBORN = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(subprocess.Popen([sys.executable, "-c", "{SLEEP}"]).pid, flush=True)
{SLEEP}
"""
# A supervisor that starts one child, says its number and waits to be killed.
SUPERVISOR = f"""
import sys, os, time
from pathlib import Path
from tests.tools.children import Program
program = Program(name="c", command=[sys.executable, "-c", "{SLEEP}"], log=Path(sys.argv[1]), environ=os.environ)
print(program.start().pid, flush=True)
time.sleep(600)
"""


def start(log: Path, code: str, *, patience: float = 60.0) -> Child:
    command = [sys.executable, "-c", code]
    return Program(
        name="the child", command=command, log=log, environ=os.environ, patience=patience
    ).start()


def said(child: Child) -> str:
    return child.program.log.read_text()


def test_a_child_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SUPERVISOR, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        child = int(supervisor.stdout.readline())
        assert alive(child)
        supervisor.kill()
    eventually(lambda: not alive(child))


def test_ctrl_c_at_the_terminal_does_not_reach_it(tmp_path: Path) -> None:
    child = start(tmp_path / "log", SLEEP)
    try:
        assert os.getpgid(child.pid) == child.pid != os.getpgrp()
    finally:
        child.stop()


def test_a_child_receives_a_signal_and_may_clean_up(tmp_path: Path) -> None:
    code = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(print('tidy')))\n"
    child = start(tmp_path / "log", f"{code}print('up', flush=True)\n{LISTEN}")
    eventually(lambda: "up" in said(child))
    child.stop()
    assert said(child) == "up\ntidy\n"
    assert child.ended == 0


def test_a_child_that_ignores_the_signal_is_killed_with_all_it_started(tmp_path: Path) -> None:
    child = start(tmp_path / "log", STUBBORN, patience=0.2)
    eventually(lambda: said(child).endswith("\n"))
    grandchild = int(said(child))
    child.stop()
    assert child.ended == -signal.SIGKILL
    eventually(lambda: not alive(grandchild))


def test_a_failure_is_told_with_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of another day\n")
    child = start(tmp_path / "log", "import sys; print('the cause'); sys.exit(3)")
    with pytest.raises(Unready, match=r"the child ended with 3\.\n.*log:\n  \| the cause$"):
        child.wait_for_success()


def test_a_child_that_exits_before_it_is_ready_is_not_waited_for(tmp_path: Path) -> None:
    child = start(tmp_path / "log", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(Unready, match="the child was ended by SIGSEGV"):
        child.wait_until(lambda: False, seconds=600)


def test_a_child_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    child = start(tmp_path / "log", SLEEP)
    try:
        with pytest.raises(Unready, match=r"was not ready after 0 s\."):
            child.wait_until(lambda: False, seconds=0.1)
    finally:
        child.stop()
