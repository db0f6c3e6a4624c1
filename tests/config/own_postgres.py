"""A PostgreSQL of a test's own, to be frozen."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tools.children import Child
from tests.tools.postgres import Postgres


class OwnPostgres:
    """``url`` is that of an empty database on it."""

    def __init__(self, folder: Path) -> None:
        server = Postgres(folder=folder, sockets=folder, log=folder / "postgres.log", durable=False)
        self._child: Child = server.start()
        self.url = server.url

    def stop(self) -> None:
        self._child.stop()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Its kernel takes connections and bytes, and nobody answers."""
        # The first one first, so that it starts no others meanwhile.
        processes = [self._child.pid]
        os.kill(self._child.pid, signal.SIGSTOP)
        for process in _children(self._child.pid):
            os.kill(process, signal.SIGSTOP)
            processes.append(process)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = OwnPostgres(Path(folder))
        try:
            yield server
        finally:
            server.stop()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
