"""Child processes that never outlive this one: the kernel signals each of them when this process dies.

Start them from the main thread: the kernel watches the thread that started the child.
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.tools import Unready
from tests.tools.folders import ROOT
from tests.tools.stops import pause

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.02
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A command with the signal that ends it, seconds to wait for that, and the signal if this process dies."""

    name: str
    command: Sequence[str]
    log: Path
    environ: Mapping[str, str]
    asked_by: signal.Signals = signal.SIGTERM
    orphaned_by: signal.Signals = signal.SIGKILL
    patience: float = 10.0

    def start(self) -> "Child":
        """Starts it in its own process group, so that Ctrl-C at the terminal reaches only this process."""
        parent = os.getpid()
        with self.log.open("ab") as log:
            began = log.tell()
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environ,
                cwd=ROOT,
                process_group=0,
                # Of all files of this process a child inherits only the lock of a folder (tests.tools.folders.held).
                close_fds=False,
                preexec_fn=lambda: die_with(parent, self.orphaned_by),  # noqa: PLW1509 - only two system calls
            )
        return Child(self, process, began)


class Child:
    """A running program."""

    def __init__(self, program: Program, process: subprocess.Popen[bytes], log_from: int) -> None:
        self.program = program
        self.pid = process.pid
        self._process = process
        self._log_from = log_from

    @property
    def ended(self) -> int | None:
        """Its exit code, negative for a signal, or None while it runs."""
        return self._process.poll()

    def wait_for_success(self) -> None:
        """Returns once it has succeeded; Unready with the end of its log if it failed."""
        while self.ended is None:
            pause(POLL_SECONDS)
        if self.ended != 0:
            raise Unready(self.obituary())

    def wait_until(self, ready: Callable[[], bool], *, seconds: float) -> None:
        """Returns when it is ready; Unready with the end of its log if it ends first or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self.ended is not None:
                raise Unready(self.obituary())
            if time.monotonic() > deadline:
                raise Unready(
                    f"{self.program.name} was not ready after {seconds:.0f} s.\n{self.last_words()}"
                )
            pause(POLL_SECONDS)

    def stop(self) -> None:
        """Signals it and waits; past its patience, or at a second stop, its whole group is killed."""
        try:
            if self.ended is None:
                self._process.send_signal(self.program.asked_by)
            deadline = time.monotonic() + self.program.patience
            while self.ended is None and time.monotonic() < deadline:
                pause(POLL_SECONDS)
        finally:
            if self.ended is None:
                os.killpg(self.pid, signal.SIGKILL)
                self._process.wait()

    def obituary(self) -> str:
        """Its exit code or signal, and the end of its log."""
        code = self.ended or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"{self.program.name} {how}.\n{self.last_words()}"

    def last_words(self, lines: int = 15) -> str:
        """The last lines it wrote since it started, under the name of its log."""
        with self.program.log.open("rb") as log:
            log.seek(max(self._log_from, self.program.log.stat().st_size - 16_384))
            said = log.read().decode(errors="replace").splitlines()[-lines:]
        return "\n".join(
            [f"The end of {self.program.log}:", *(f"  | {line}" for line in said or ["(nothing)"])]
        )


def die_with(parent: int, by: signal.Signals) -> None:
    """Makes the kernel signal this process when its parent ends, also if that has happened already."""
    if _libc.prctl(PR_SET_PDEATHSIG, by, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        os.kill(os.getpid(), by)
