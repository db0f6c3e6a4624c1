"""Servers and an environment for one command or test run, in a folder that goes with them."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.tools import kept, redis
from tests.tools.children import POLL_SECONDS, die_with
from tests.tools.folders import held, is_held, sockets_of
from tests.tools.postgres import Postgres
from tests.tools.stops import Stopped, pause
from tests.tools.variables import for_tests, outside

PREFIX = "shell-test-"
YOUNG_SECONDS = 60.0


@contextmanager
def throwaway_environment() -> Iterator[dict[str, str]]:
    """Every variable a test run needs, with the addresses of servers started for it.

    Call it from the main thread. Nothing is left afterwards, and the next one removes what a killed one left.
    """
    _sweep()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(held(folder))
        sockets = stack.enter_context(sockets_of(folder))
        cache = ""
        if redis.available():
            server = redis.Redis(folder=folder, sockets=sockets, log=folder / "redis.log")
            stack.callback(server.start().stop)
            cache = server.url
        database = Postgres(
            folder=folder, sockets=sockets, log=folder / "postgres.log", durable=False
        )
        environ = for_tests(folder)
        kept.lay_out(database, environ)
        stack.callback(database.start().stop)
        yield {**environ, "CACHE_URL": cache, "DATABASE_URL": database.url}


def beside_servers(command: Sequence[str]) -> int:
    """Runs a command with such an environment; its exit code, or 128 and the number of its signal."""
    parent = os.getpid()
    with throwaway_environment() as environ:
        process = subprocess.Popen(
            command,
            env={**outside(os.environ), **environ},
            preexec_fn=lambda: die_with(parent, signal.SIGTERM),  # noqa: PLW1509 - only two system calls
        )
        while (code := process.poll()) is None:
            try:
                pause(POLL_SECONDS)
            except Stopped as stop:
                # Ctrl-C has reached the command too, at the same terminal.
                if stop.number != signal.SIGINT:
                    process.send_signal(stop.number)
    return code if code >= 0 else 128 - code


def _sweep() -> None:
    """Removes the folders of killed test runs; a living one holds its folder."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock"):
        with suppress(FileNotFoundError):
            state = lock.stat()
            # A folder made this moment may not be held yet.
            old = time.time() - state.st_mtime > YOUNG_SECONDS
            if old and state.st_uid == os.geteuid() and not is_held(lock.parent):
                shutil.rmtree(lock.parent, ignore_errors=True)
