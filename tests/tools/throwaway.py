"""Servers and an environment of a test run's own, in a folder that goes with them."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.tools import redis
from tests.tools.folders import held, is_held, sockets_of
from tests.tools.postgres import Postgres
from tests.tools.variables import for_tests

PREFIX = "shell-test-"
YOUNG_SECONDS = 60.0


@contextmanager
def throwaway_environment() -> Iterator[dict[str, str]]:
    """Every variable a test run needs, with the addresses of servers started for it.

    Call it from the main thread. Nothing is left once it is over, and what a killed one left goes with the next.
    """
    _sweep()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(held(folder))
        sockets = stack.enter_context(sockets_of(folder))
        cache, database = _cache(folder, sockets, stack), _database(folder, sockets, stack)
        yield {**for_tests(folder), "CACHE_URL": cache, "DATABASE_URL": database}


def _database(folder: Path, sockets: Path, stack: ExitStack) -> str:
    server = Postgres(folder=folder, sockets=sockets, log=folder / "postgres.log", durable=False)
    stack.callback(server.start().stop)
    return server.url


def _cache(folder: Path, sockets: Path, stack: ExitStack) -> str:
    if not redis.available():
        return ""
    server = redis.Redis(folder=folder, sockets=sockets, log=folder / "redis.log")
    stack.callback(server.start().stop)
    return server.url


def _sweep() -> None:
    """Removes the folders of test runs that were killed; a living one holds its folder."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock"):
        with suppress(FileNotFoundError):
            state = lock.stat()
            # One that is only just being made may not be held yet.
            old = time.time() - state.st_mtime > YOUNG_SECONDS
            if old and state.st_uid == os.geteuid() and not is_held(lock.parent):
                shutil.rmtree(lock.parent, ignore_errors=True)
