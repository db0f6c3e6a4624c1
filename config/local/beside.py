"""Runs a command beside servers of its own, as a test run does."""

import os
import signal
import subprocess
from collections.abc import Sequence

from config.local.children import die_with
from config.local.throwaway import throwaway_environment
from config.local.variables import outside


def beside_servers(command: Sequence[str]) -> int:
    """The command's exit code (128 and the number for a signal), once it and its servers have ended."""
    parent = os.getpid()
    with throwaway_environment() as environ:
        process = subprocess.Popen(
            command,
            env={**outside(os.environ), **environ},
            preexec_fn=lambda: die_with(parent, signal.SIGTERM),  # noqa: PLW1509 - one thread
        )
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # The command is at the same terminal and has had the same Ctrl-C.
            code = process.wait()
        except SystemExit:
            process.terminate()
            process.wait()
            raise
    return code if code >= 0 else 128 - code
