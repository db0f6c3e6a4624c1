"""A second PostgreSQL that follows the bench's own by streaming replication, and may be asked as that one may."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.tools.children import Child, Program
from tests.tools.folders import sockets_of
from tests.tools.owners import as_superuser
from tests.tools.postgres import Postgres, psql
from tests.tools.privileges import unprivileged

WATCHED_EVERY = 0.02
CATCH_UP_SECONDS = 60.0
REPLAYED = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """Made by :func:`standby`."""

    child: Child
    server: Postgres

    def url(self, primary: str) -> str:
        """Returns the standby's address of this database of the primary."""
        return self.server.url_of(primary.rpartition("/")[2])

    def catch_up(self, primary: str) -> None:
        """Returns once it has replayed all that is on the primary's disk by now."""
        with (
            psycopg.connect(primary, autocommit=True) as server,
            psycopg.connect(self.server.url, autocommit=True) as own,
        ):
            [written] = server.execute("SELECT pg_current_wal_flush_lsn()").fetchone() or (None,)
            deadline = time.monotonic() + CATCH_UP_SECONDS
            while own.execute(REPLAYED, [written]).fetchone() != (True,):
                assert time.monotonic() < deadline, "the standby does not catch up"
                time.sleep(WATCHED_EVERY)


@contextmanager
def standby(folder: Path, primary: str) -> Iterator[Standby]:
    """A copy of the whole server at this address, which goes on following it; its data goes at the end."""
    own = folder / "standby"
    own.mkdir()
    try:
        _copy(own, primary)
        with sockets_of(own) as sockets:
            server = Postgres(folder=own, sockets=sockets, log=own / "postgres.log")
            child = server.start()
            try:
                yield Standby(child=child, server=server)
            finally:
                child.stop()
    finally:
        shutil.rmtree(own)


def _copy(own: Path, primary: str) -> None:
    program = Program(
        name="pg_basebackup",
        command=[
            *unprivileged(),
            str(Path(psql()).with_name("pg_basebackup")),
            *(f"--dbname={as_superuser(primary)}", f"--pgdata={own / 'postgres'}"),
            *("--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream"),
        ],
        log=own / "copying.log",
        environ={**os.environ, "LC_ALL": "C"},
    )
    copying = program.start()
    try:
        copying.wait_for_success()
    finally:
        copying.stop()
