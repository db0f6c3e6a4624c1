"""Runs a command beside servers of its own, as a test run does."""

import os
import signal
import subprocess
from collections.abc import Sequence

from tests.tools.children import POLL_SECONDS, die_with
from tests.tools.stops import Stopped, pause
from tests.tools.throwaway import throwaway_environment
from tests.tools.variables import outside


def beside_servers(command: Sequence[str]) -> int:
    """The command's exit code (128 and the number for a signal), once it and its servers have ended."""
    parent = os.getpid()
    with throwaway_environment() as environ:
        process = subprocess.Popen(
            command,
            env={**outside(os.environ), **environ},
            preexec_fn=lambda: die_with(parent, signal.SIGTERM),  # noqa: PLW1509 - only two system calls
        )
        code = _wait(process)
    return code if code >= 0 else 128 - code


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Passes on every wish to stop but Ctrl-C, which the command at the same terminal has had too."""
    while (code := process.poll()) is None:
        try:
            pause(POLL_SECONDS)
        except Stopped as stop:
            if stop.number != signal.SIGINT:
                process.send_signal(stop.number)
    return code
