"""An installation on the PostgreSQL of Debian, by a role that is no superuser, as managed servers give one."""

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from tests.served.service import manage, running_service
from tests.tools.children import Program
from tests.tools.privileges import give_to_server, unprivileged

pytestmark = pytest.mark.wire

PROGRAMS = Path("/usr/lib/postgresql")
SETTINGS = ("listen_addresses=", "fsync=off", "max_connections=100")


class Bare:
    """A server with its superuser alone, on a socket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def url(self, role: str, database: str) -> str:
        return f"postgresql://{role}@{quote(str(self._folder), safe='')}/{database}"

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url("postgres", "postgres"), autocommit=True) as superuser:
            for each in statements:
                superuser.execute(each.encode())

    @contextmanager
    def running(self) -> Iterator[None]:
        programs, data = max(PROGRAMS.glob("*/bin")), self._folder / "data"
        layout = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8")
        making = self._program(str(programs / "initdb"), f"--pgdata={data}", *layout).start()
        making.wait_for_success()
        give_to_server(data)
        options = [part for each in SETTINGS for part in ("-c", each)]
        program = self._program(
            str(programs / "postgres"), "-D", str(data), "-k", str(self._folder), *options
        )
        child = program.start()
        try:
            child.wait_until(self._answers, seconds=60)
            yield
        finally:
            child.stop()

    def _program(self, *command: str) -> Program:
        return Program(
            name="PostgreSQL",
            command=[*unprivileged(), *command],
            log=self._folder / "log",
            environ={**os.environ, "LC_ALL": "C.UTF-8"},
            asked_by=signal.SIGINT,
        )

    def _answers(self) -> bool:
        address = self.url("postgres", "postgres").encode()
        return psycopg.pq.PGconn.ping(address) == psycopg.pq.Ping.OK


@pytest.fixture(scope="module")
def bare() -> Iterator[Bare]:
    # A short path, for the socket.
    with tempfile.TemporaryDirectory(prefix="debian-") as folder:
        bare = Bare(Path(folder))
        with bare.running():
            yield bare


@pytest.fixture
def installed(bare: Bare) -> Mapping[str, str]:
    """Variables of an installation in an empty database whose owner may do nothing else."""
    bare.run("CREATE ROLE app LOGIN NOSUPERUSER", "CREATE DATABASE app OWNER app")
    environ = {**os.environ, "DATABASE_URL": bare.url("app", "app"), "CACHE_URL": ""}
    manage(environ, "migrate", "--no-input")
    return environ


def test_the_service_installs_serves_and_splits_its_roles(
    bare: Bare, installed: Mapping[str, str], tmp_path: Path
) -> None:
    manage(installed, "seed_demo", "--output", str(tmp_path / "demo.json"))
    manage(installed, "prune_audit_log")
    manage(installed, "migrate", "accounts", "0030")
    manage(installed, "migrate", "--no-input")
    bare.run("CREATE ROLE app_service LOGIN")
    split = {
        "DATABASE_URL": bare.url("app_service", "app"),
        "DATABASE_OWNER_URL": bare.url("app", "app"),
    }
    assert "owns none" in manage({**installed, **split}, "split_database_roles")
    with running_service(tmp_path, {**split, "CACHE_URL": ""}) as service:
        assert "0 events" in service.manage("prune_audit_log")
        assert service.errors() == []
