"""Split of a database that one role has owned and used, and refusals where it cannot be split."""

import os
import secrets
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from config.platform.db.roles import NotSplit, service_owns_nothing, split
from tests.races import race
from tests.served.service import manage
from tests.tools.owners import as_superuser

LOG = ["events"]


class Place:
    """A database of its own, and roles that are made for one test."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.name = address, name
        self.owner, self.service = f"{name}_owner", f"{name}_service"

    def connect(self, user: str | None = None) -> psycopg.Connection:
        parts = urlsplit(self.address)._replace(path=f"/{self.name}")
        if user:
            parts = parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}")
        return psycopg.connect(parts.geturl(), autocommit=True)

    def split(self, user: str | None = None) -> list[str]:
        with self.connect(user or self.owner) as owner:
            return split(owner, role=self.service, password="", append_only=LOG)

    def run(self, statement: str, user: str | None = None) -> None:
        with self.connect(user) as connection:
            names = {"owner": self.owner, "service": self.service, "database": self.name}
            found = {name: sql.Identifier(each) for name, each in names.items()}
            connection.execute(sql.SQL(statement).format(**found))


@pytest.fixture
def place() -> Iterator[Place]:
    address, name = as_superuser(os.environ["DATABASE_URL"]), f"split_{secrets.token_hex(4)}"
    with closing(psycopg.connect(address, autocommit=True)) as server:
        place = Place(address, name)
        server.execute(f"CREATE ROLE {place.owner} LOGIN CREATEROLE")
        server.execute(f"CREATE DATABASE {name} OWNER {place.owner}")
        try:
            yield place
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")
            server.execute(f"DROP ROLE IF EXISTS {place.service}")
            server.execute(f"DROP ROLE {place.owner}")


def tables(place: Place, user: str) -> None:
    place.run("CREATE TABLE events (id serial, said text)", user)
    place.run('CREATE TABLE "Odd table" (id int)', user)


def test_an_owner_that_is_no_superuser_makes_the_role_and_may_do_so_again(place: Place) -> None:
    tables(place, place.owner)
    works = f"{place.service} works with the rows of 2 tables and owns none."
    assert place.split() == [f"{place.service} was created.", works]
    assert place.split() == [f"{place.service} exists.", works]
    place.run("INSERT INTO events (said) VALUES ('hello')", place.service)
    place.run('UPDATE "Odd table" SET id = 2', place.service)
    for statement in ("DELETE FROM events", "TRUNCATE events", "DROP TABLE events"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            place.run(statement, place.service)


def test_the_tables_of_the_service_are_taken_over_with_everything_in_them(place: Place) -> None:
    place.run("CREATE ROLE {service} LOGIN")
    place.run("ALTER DATABASE {database} OWNER TO {service}")
    tables(place, place.service)
    place.run("INSERT INTO events (said) VALUES ('before')", place.service)
    with pytest.raises(NotSplit, match=f'REASSIGN OWNED BY "{place.service}"'):
        place.split()
    place.run("GRANT {service} TO {owner}")
    done = place.split()
    assert done[1] == f"2 tables of {place.service} belong to {place.owner} now."
    place.run("REVOKE {service} FROM {owner}")
    place.run("INSERT INTO events (said) SELECT said FROM events", place.service)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        place.run("DROP TABLE events", place.service)


def test_the_creator_of_both_roles_lets_one_take_over_without_a_superuser(
    place: Place,
) -> None:
    """As on managed PostgreSQL."""
    place.run("ALTER ROLE {owner} NOCREATEROLE")
    administrator = f"{place.name}_admin"
    place.run(f"CREATE ROLE {administrator} LOGIN CREATEROLE")
    try:
        place.run("CREATE ROLE {service} LOGIN", administrator)
        place.run("ALTER DATABASE {database} OWNER TO {service}")
        tables(place, place.service)
        with pytest.raises(NotSplit, match=f'GRANT "{place.service}"') as found:
            place.split()
        place.run(str(found.value).rpartition("again: ")[2], administrator)
        place.split()
    finally:
        place.run(f"DROP OWNED BY {administrator}; DROP ROLE {administrator}")


def test_rights_that_were_given_before_are_taken(place: Place) -> None:
    tables(place, place.owner)
    place.run("CREATE ROLE {service} LOGIN")
    place.run("GRANT ALL ON ALL TABLES IN SCHEMA public TO {service}", place.owner)
    place.run("GRANT CREATE ON SCHEMA public TO PUBLIC", place.owner)
    place.split()
    for statement in ("TRUNCATE events", "CREATE TABLE mine (id int)"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            place.run(statement, place.service)


@pytest.mark.parametrize(
    ("prepared", "says"),
    [
        (["CREATE ROLE {service} LOGIN SUPERUSER"], "is a superuser"),
        (
            ["CREATE ROLE {service} LOGIN", "GRANT {owner} TO {service}"],
            "may do more than work with",
        ),
        (["CREATE ROLE {service} LOGIN", "GRANT pg_write_all_data TO {service}"], "may do more"),
        (
            ["ALTER ROLE {owner} NOCREATEROLE"],
            "As a role with CREATEROLE, and then again: CREATE ROLE",
        ),
    ],
    ids=["superuser", "member of the owner", "writes everything", "nobody may make it"],
)
def test_a_refused_split_names_its_obstacle(place: Place, prepared: list[str], says: str) -> None:
    tables(place, place.owner)
    for statement in prepared:
        place.run(statement)
    with pytest.raises(NotSplit, match=says):
        place.split()


def test_one_role_for_both_is_refused(place: Place) -> None:
    with place.connect(place.owner) as owner, pytest.raises(NotSplit, match="as DATABASE_URL does"):
        split(owner, role=place.owner, password="", append_only=LOG)


def test_two_at_once_both_do_it(place: Place) -> None:
    tables(place, place.owner)
    place.run("CREATE ROLE {service} LOGIN")
    said = race(place.split, place.split)
    assert said == [place.split()] * 2


@pytest.mark.django_db
def test_a_service_that_owns_its_tables_is_told_so() -> None:
    [warning] = service_owns_nothing(None, ["default"])
    assert warning.id == "config.W002"
    assert "split_database_roles" in str(warning.hint)
    assert service_owns_nothing(None, None) == []


def test_a_password_is_kept_as_its_verifier(place: Place) -> None:
    with place.connect(place.owner) as owner:
        split(owner, role=place.service, password="swordfish", append_only=LOG)
    with place.connect() as superuser:
        asked = "SELECT rolpassword FROM pg_authid WHERE rolname = %s"
        [[kept]] = superuser.execute(asked, [place.service]).fetchall()
    assert kept.startswith("SCRAM-SHA-256$")


def test_a_database_without_an_encoding_is_split_too(place: Place) -> None:
    name = sql.Identifier(f"{place.name}_raw")
    create = (
        "CREATE DATABASE {} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE_PROVIDER libc LOCALE 'C'"
    )
    address = urlsplit(place.address)
    host, path = address.netloc.rpartition("@")[2], f"/{place.name}_raw"
    owner, service = (
        address._replace(netloc=f"{user}@{host}", path=path).geturl()
        for user in (place.owner, place.service)
    )
    with closing(psycopg.connect(place.address, autocommit=True)) as server:
        server.execute(sql.SQL(create + " OWNER {}").format(name, sql.Identifier(place.owner)))
        try:
            environ = {**os.environ, "DATABASE_URL": service, "DATABASE_OWNER_URL": owner}
            assert "works with the rows" in manage(environ, "split_database_roles")
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
