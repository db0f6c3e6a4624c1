"""A database that could not hold what people write is refused by name, whatever begins with it."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection

from config.platform.db.encoding import database_is_utf8, refuse_other_encodings
from tests.tools.folders import ROOT
from tests.tools.owners import NAME, as_superuser


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def other_encoding(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A database as of mattermost/docs#3943, and as of IQSS/dataverse#8278."""
    name, address = f"other_{secrets.token_hex(4)}", os.environ["DATABASE_URL"]
    with psycopg.connect(as_superuser(address), autocommit=True) as superuser:
        superuser.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{request.param}'"
            f" LOCALE_PROVIDER libc LOCALE 'C' OWNER {NAME}"
        )
        try:
            yield f"{address.rpartition('/')[0]}/{name}", request.param
        finally:
            superuser.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    "command",
    [
        ["manage.py", "migrate", "--no-input"],
        ["manage.py", "check", "--database", "default"],
        ["manage.py", "work"],
        ["-m", "gunicorn", "-c", "python:config.gunicorn", "config.wsgi"],
    ],
    ids=["migrate", "check", "work", "serve"],
)
def test_a_database_of_another_encoding_is_refused_by_name(
    other_encoding: tuple[str, str], command: list[str]
) -> None:
    address, encoding = other_encoding
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": address, "PORT": "0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    name = address.rpartition("/")[2]
    assert done.returncode != 0
    assert f"The database {name} has the encoding {encoding}; it must be UTF8." in done.stderr
    assert "Traceback" not in done.stderr
    with psycopg.connect(address) as left:
        found = left.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert found.fetchone() == (0,)


@pytest.mark.django_db
def test_a_utf8_database_is_accepted_and_an_absent_one_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert database_is_utf8(None, ["default"]) == []
    assert database_is_utf8(None, None) == []
    refuse_other_encodings()
    monkeypatch.setitem(connection.settings_dict, "HOST", "/nonexistent")
    refuse_other_encodings()
