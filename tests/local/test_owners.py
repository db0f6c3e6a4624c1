"""Tables belong to a role that is no superuser: on a new server, on one of an earlier version, and in tests."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.served.service import manage
from tests.served.test_upgrade import BEFORE
from tests.tools import postgres as tools
from tests.tools.folders import sockets_of
from tests.tools.owners import NAME, RENAMER, SERVICE, SUPERUSER, as_superuser
from tests.tools.postgres import MIGRATED, SPLIT, Postgres

POWERS = "rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls"
DUMP = BEFORE / "1f2697d.sql.gz"
# Nothing of any kind in a database of its own belongs to the first role, except what came with it.
FOREIGN = """
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relowner <> 'shell'::regrole
UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner <> 'shell'::regrole
UNION ALL SELECT typname FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typowner <> 'shell'::regrole
"""


def powers(address: str) -> dict[str, str]:
    """By role: the first letters of what it may beyond rows and tables."""
    with psycopg.connect(address) as connection:
        rows = connection.execute(
            f"SELECT rolname, {POWERS} FROM pg_roles WHERE rolcanlogin ORDER BY 1"
        ).fetchall()
    names = [each.removeprefix("rol") for each in POWERS.split(", ")]
    return {
        role: " ".join(name for name, may in zip(names, has, strict=True) if may)
        for role, *has in rows
    }


@pytest.mark.parametrize("name", [MIGRATED, SPLIT, ""])
def test_no_superuser_has_migrated_what_tests_copy(name: str) -> None:
    address = os.environ["DATABASE_URL"]
    at = f"{address.rpartition('/')[0]}/{name}" if name else address
    with psycopg.connect(at) as connection:
        assert connection.execute("SHOW is_superuser").fetchone() == ("off",)
        owners = connection.execute(
            "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
        mine = connection.execute(
            "SELECT datdba::regrole::text FROM pg_database WHERE datname = current_database()"
        ).fetchone()
    assert (owners, mine) == ([(NAME,)] if name else [], (NAME,))
    assert powers(at)[NAME] == "createdb"
    assert powers(at)[SERVICE] == ""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Postgres]:
    with sockets_of(tmp_path) as sockets:
        yield Postgres(folder=tmp_path, sockets=sockets, log=tmp_path / "log", durable=False)


def as_before(server: Postgres, monkeypatch: pytest.MonkeyPatch, *, dump: bytes) -> None:
    """Lays out a folder as earlier versions did: their first role is NAME, which owns all."""

    def earlier(address: str) -> None:
        with psycopg.connect(address, autocommit=True) as first:
            first.execute(f"CREATE DATABASE {NAME}")
            first.execute(f"CREATE ROLE {SERVICE} LOGIN")
        with psycopg.connect(server.url, autocommit=True) as first:
            first.execute(dump)

    with monkeypatch.context() as patch:
        patch.setattr(tools, "LAYOUT", tools.LAYOUT.replace(SUPERUSER, NAME))
        patch.setattr(tools, "make_roles", earlier)
        # Earlier versions had no such role.
        with pytest.raises(psycopg.OperationalError, match=SUPERUSER):
            server.start()


@pytest.mark.full
@pytest.mark.parametrize("killed", [False, True])
def test_a_folder_of_an_earlier_version_is_upgraded_with_all_in_it(
    server: Postgres, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    as_before(server, monkeypatch, dump=gzip.decompress(DUMP.read_bytes()))
    if killed:
        monkeypatch.setattr("tests.tools.owners.hand_over", _dies)
        with pytest.raises(SystemError):
            server.start()
        monkeypatch.undo()
    for _ in range(2):
        child = server.start()
        try:
            assert powers(server.url) == {
                SUPERUSER: "super createrole createdb replication bypassrls",
                NAME: "createdb",
                SERVICE: "",
            }
            with psycopg.connect(as_superuser(server.url)) as connection:
                assert connection.execute(FOREIGN).fetchall() == []
            environ = {**os.environ, "DATABASE_URL": server.url, "CACHE_URL": ""}
            manage(environ, "migrate", "--no-input")
            environ |= {"DATABASE_URL": server.service_url, "DATABASE_OWNER_URL": server.url}
            assert "and owns none" in manage(environ, "split_database_roles")
            manage(environ, "prune_audit_log")
        finally:
            child.stop()


def _dies(*_: object) -> None:
    raise SystemError


def test_an_upgrade_that_was_killed_after_its_end_leaves_no_second_superuser(
    server: Postgres,
) -> None:
    server.start().stop()
    child = server.start()
    with psycopg.connect(server.superuser_url, autocommit=True) as superuser:
        superuser.execute(f"CREATE ROLE {RENAMER} LOGIN SUPERUSER")
    child.stop()
    child = server.start()
    try:
        assert RENAMER not in powers(server.url)
    finally:
        child.stop()
