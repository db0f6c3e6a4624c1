"""Starts programs from a process that has loaded their libraries already, which saves a second of computing each."""

import atexit
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from tests.tools.children import Child, Program, die_with
from tests.tools.folders import ROOT

PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


class Adopted:
    """A child of this process that another one has forked; what `Child` asks of a Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended: int | None = None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        return self._wait(0)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _wait(self, how: int) -> int | None:
        if self._ended is None:
            pid, status = os.waitpid(self.pid, how)
            self._ended = os.waitstatus_to_exitcode(status) if pid else None
        return self._ended


def start(program: Program) -> Child:
    """As the program's own ``start``; its command is Python with a module."""
    parent = os.getpid()
    began = program.log.stat().st_size if program.log.exists() else 0
    asked = {
        "arguments": program.command[program.command.index("-m") + 1 :],
        "environ": dict(program.environ),
        "log": str(program.log),
        "parent": parent,
        "orphaned_by": program.orphaned_by,
    }
    channel = _preloading(parent)
    with _adopting():
        channel.sendall(json.dumps(asked).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += channel.recv(64)
            assert answer, "It has ended."
        pid = int(answer)
    return Child(program, Adopted(pid), began)  # type: ignore[arg-type]


@cache
def _preloading(parent: int) -> socket.socket:
    """The end of the channel on which it is asked; it ends with this process."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.served.preloading", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            preexec_fn=lambda: die_with(parent, signal.SIGKILL),  # noqa: PLW1509 - only two system calls
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


@contextmanager
def _adopting() -> Iterator[None]:
    """Processes that lose their parent meanwhile become children of this one."""
    _set_adopting(1)
    try:
        yield
    finally:
        _set_adopting(0)


def _set_adopting(on: int) -> None:
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, on, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
