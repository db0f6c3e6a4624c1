"""A PostgreSQL of a test's own, to be frozen, killed and started again."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.tools.children import Child
from tests.tools.postgres import Postgres


class OwnPostgres:
    """``url`` is that of an empty database on it."""

    def __init__(self, folder: Path, *, sockets: Path | None = None, durable: bool = False) -> None:
        self.server = Postgres(
            folder=folder, sockets=sockets or folder, log=folder / "postgres.log", durable=durable
        )
        self.child: Child = self.server.start()
        self.url = self.server.url

    def stop(self) -> None:
        self.child.stop()

    def start(self) -> None:
        """Once more, with what it had."""
        self.child = self.server.start()

    def kill(self) -> None:
        """All of its processes at once; nothing is written any more."""
        with self.frozen():
            for process in [*_children(self.child.pid), self.child.pid]:
                _send(process, signal.SIGKILL)
        self.child.stop()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Its kernel takes connections and bytes, and nobody answers."""
        # The first one first, so that it starts no others meanwhile.
        processes = [self.child.pid]
        os.kill(self.child.pid, signal.SIGSTOP)
        for process in _children(self.child.pid):
            _send(process, signal.SIGSTOP)
            processes.append(process)
        try:
            yield
        finally:
            for process in processes:
                _send(process, signal.SIGCONT)


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = OwnPostgres(Path(folder))
        try:
            yield server
        finally:
            server.stop()


def _send(process: int, number: signal.Signals) -> None:
    """One whose connection has just ended, or that was killed, may be gone."""
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
