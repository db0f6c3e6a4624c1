"""A PostgreSQL that archives its log, and the documented commands by which it is copied and restored."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psycopg

from tests.tools.children import Child
from tests.tools.folders import ROOT, sockets_of
from tests.tools.postgres import Postgres, psql
from tests.tools.privileges import unprivileged

OPERATING = ROOT / "docs" / "operating.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ARCHIVED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Documented:
    """The commands of *Backup and restore*, in their order: set up, copy, lay out an empty server, open it."""

    once: str
    nightly: str
    restore: str
    after: str

    @classmethod
    def read(cls) -> "Documented":
        _, _, rest = OPERATING.read_text().partition("\n## Backup and restore\n")
        return cls(*BLOCK.findall(rest.partition("\n## ")[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server of a drill, its process, and the folder with its archive and base backup."""

    server: Postgres
    child: Child
    backup: Path
    # By the clock of this process, which does not go back.
    laid_out_at: float = 0.0

    @property
    def superuser(self) -> str:
        return self.server.superuser_url

    def run(self, commands: str, *, moment: str = "", into: Path | None = None) -> None:
        """Runs commands as the server's user, who finds PostgreSQL's programs by their names."""
        given = {"SERVER": self.superuser, "BACKUP": str(self.backup), "MOMENT": moment}
        run(commands, {**given, "PGDATA": str(into)}, prefix=unprivileged())

    def die(self) -> None:
        """Ends it at once, when all that is committed is in the archive."""
        with psycopg.connect(self.superuser, autocommit=True) as connection:
            [last] = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone() or ()
            archived = "SELECT coalesce(last_archived_wal, '') >= %s FROM pg_stat_archiver"
            deadline = time.monotonic() + ARCHIVED_SECONDS
            while connection.execute(archived, [last]).fetchone() != (True,):
                assert time.monotonic() < deadline, f"{last} is not archived"
                time.sleep(0.1)
        os.kill(self.child.pid, signal.SIGKILL)
        self.child.stop()


def run(commands: str, environ: Mapping[str, str], *, prefix: Sequence[str] = ()) -> None:
    """Runs commands of the documentation as they stand there."""
    path = os.pathsep.join(
        [str(Path(psql()).parent), str(ROOT / ".venv" / "bin"), os.environ["PATH"]]
    )
    done = subprocess.run(
        [*prefix, "sh", "-euc", commands],
        cwd=ROOT,
        env={**os.environ, "LC_ALL": "C", **environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"


@contextmanager
def archiving(folder: Path, lay_out: Callable[[Postgres], object]) -> Iterator[Running]:
    """A server that archives as is documented. ``lay_out`` may give it data before it starts."""
    backup = folder / "backup"
    backup.mkdir()
    with ExitStack() as stack:
        server = Postgres(
            folder=folder,
            sockets=stack.enter_context(sockets_of(folder)),
            log=folder / "postgres.log",
        )
        lay_out(server)
        child = server.start()
        stack.callback(child.stop)
        Running(server=server, child=child, backup=backup).run(Documented.read().once)
        child.stop()
        child = server.start()
        stack.callback(child.stop)
        yield Running(server=server, child=child, backup=backup)


@contextmanager
def restored(folder: Path, lost: Running, moment: datetime) -> Iterator[Running]:
    """An empty server that becomes the lost one as it was at a moment."""
    with ExitStack() as stack:
        server = Postgres(
            folder=folder,
            sockets=stack.enter_context(sockets_of(folder)),
            log=folder / "postgres.log",
        )
        lost.run(Documented.read().restore, moment=moment.isoformat(), into=server.data)
        at = time.monotonic()
        child = server.start()
        stack.callback(child.stop)
        yield Running(server=server, child=child, backup=lost.backup, laid_out_at=at)
