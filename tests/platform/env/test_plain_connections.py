"""Servers on another machine: reached in the clear only where an operator says so, and this machine's always."""

import os
import subprocess
import sys

import pytest
from environs import ValidationError

from config.platform.env.addresses import database_url
from config.platform.env.plain_connections import faults, plain_connections
from tests.tools.folders import ROOT


@pytest.fixture(autouse=True)
def _without_libpq(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGSSLMODE", "PGHOST"):
        monkeypatch.delenv(name, raising=False)


def of_database(address: str, allowed: str = "") -> list[str]:
    given = {"DATABASE_URL": database_url(address), "REPLICA_URL": None}
    return list(faults(given, "", allowed=plain_connections(allowed)))


def of_cache(address: str, allowed: str = "") -> str:
    return faults({}, address, allowed=plain_connections(allowed)).get("CACHE_URL", "")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://shell@127.0.0.1/shell",
        "postgresql://shell@localhost:5433/shell",
        "postgresql://shell@[::1]:5433/shell",
        "postgresql://shell@%2Frun%2Fpostgresql/shell",
        "postgresql:///shell",
        "postgresql://shell@db.example/shell?sslmode=require",
        "postgresql://shell@db.example/shell?sslmode=verify-full&sslrootcert=/ca.pem",
        "postgresql://shell@db.example/shell?hostaddr=127.0.0.1",
    ],
)
def test_a_database_of_this_machine_or_by_tls_is_reached(address: str) -> None:
    assert of_database(address) == []


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://shell@db.example/shell",
        "postgresql://shell@10.0.0.5/shell",
        "postgresql://shell@database/shell?sslmode=prefer",
        "postgresql://shell@database/shell?sslmode=disable",
        "postgresql://shell@[2001:db8::1]/shell",
        "postgresql://shell@localhost/shell?hostaddr=10.0.0.5",
        "postgresql://shell@localhost.example/shell",
    ],
)
def test_a_database_elsewhere_in_the_clear_is_refused_or_allowed_by_name(address: str) -> None:
    assert of_database(address) == ["DATABASE_URL"]
    assert of_database(address, "cache") == ["DATABASE_URL"]
    assert of_database(address, "cache,database") == []


def test_the_clients_own_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert of_database("postgresql://shell@db.example/shell") == []
    assert of_database("postgresql://shell@db.example/shell?sslmode=disable") == ["DATABASE_URL"]
    monkeypatch.delenv("PGSSLMODE")
    monkeypatch.setenv("PGHOST", "db.example")
    assert of_database("postgresql:///shell") == ["DATABASE_URL"]


@pytest.mark.parametrize(
    ("address", "lack"),
    [
        ("", ""),
        ("redis://127.0.0.1:6379/0", ""),
        ("redis://localhost", ""),
        ("unix:///run/redis.sock?db=1", ""),
        ("redis+sentinel://127.0.0.1:1,[::1]:2/main", ""),
        ("rediss://user:secret@cache", ""),
        ("rediss://cache?password=secret", ""),
        ("rediss://cache?ssl_certfile=/c.pem", ""),
        ("rediss://cache", "a password"),
        ("redis://:secret@cache", "TLS: use rediss://"),
        ("redis://10.0.0.5", "TLS: use rediss://"),
        ("redis+sentinel://:secret@127.0.0.1,b/main", "TLS, which only a single server"),
        ("redis+cluster://user:secret@a,b:7001", "TLS, which only a single server"),
    ],
)
def test_a_cache_elsewhere_wants_tls_and_a_password(address: str, lack: str) -> None:
    sentence = of_cache(address)
    assert lack in sentence
    assert bool(sentence) is bool(lack)
    assert "secret" not in sentence
    assert of_cache(address, "cache") == ""
    assert bool(of_cache(address, "database")) is bool(lack)


@pytest.mark.parametrize("value", ["yes", "database;cache", "redis"])
def test_the_variable_names_servers(value: str) -> None:
    with pytest.raises(ValidationError):
        plain_connections(value)


@pytest.mark.parametrize("allowed", ["", "database,cache"])
def test_a_start_names_the_variable_that_allows_it(allowed: str) -> None:
    given = {
        "DATABASE_URL": "postgresql://shell:s3cret@db.example/shell",
        "CACHE_URL": "redis://:s3cret@cache/0",
        "PLAIN_CONNECTIONS": allowed,
    }
    done = subprocess.run(
        [sys.executable, "-c", "import config.settings"],
        cwd=ROOT,
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == 0) is bool(allowed), done.stderr
    if not allowed:
        assert "DATABASE_URL: This server is reached without TLS." in done.stderr
        assert "PLAIN_CONNECTIONS=database." in done.stderr
        assert "PLAIN_CONNECTIONS=cache." in done.stderr
    assert "s3cret" not in done.stderr
