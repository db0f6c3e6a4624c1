"""Brakes of release 213cb5a1 become held suspensions while its processes still ask for brakes."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Permission
from pytest_django.plugin import DjangoDbBlocker

from accounts.models import User
from licensing.models import HeldSuspension
from tests.served.database import Database, new_database
from tests.served.service import manage
from tests.served.test_upgrade import restore

pytestmark = pytest.mark.full

TYPES = "SELECT id, model FROM django_content_type WHERE app_label = 'licensing' ORDER BY id"
GRANTED = """
INSERT INTO auth_group (name) VALUES ('watchers');
INSERT INTO auth_group_permissions (group_id, permission_id)
    SELECT g.id, p.id FROM auth_group AS g, auth_permission AS p
    WHERE g.name = 'watchers' AND p.codename = 'view_brake';
INSERT INTO accounts_user_groups (user_id, group_id)
    SELECT u.id, g.id FROM accounts_user AS u, auth_group AS g
    WHERE u.email = 'operator@demo.test' AND g.name = 'watchers';
INSERT INTO accounts_user_user_permissions (user_id, permission_id)
    SELECT u.id, p.id FROM accounts_user AS u, auth_permission AS p
    WHERE u.email = 'operator@demo.test' AND p.codename = 'change_brake';
"""
BRAKES = {"licensing.view_brake", "licensing.change_brake"}
HELD = {"licensing.view_heldsuspension", "licensing.change_heldsuspension"}


@pytest.fixture(scope="module")
def before(django_db_blocker: DjangoDbBlocker) -> Iterator[Database]:
    """A database of that release, in which an operator has a permission of a brake and a group has another."""
    with new_database(django_db_blocker.unblock) as database:
        restore(database.url, "213cb5a1", datetime.now(UTC))
        with psycopg.connect(database.url) as connection:
            connection.execute(GRANTED)
        yield database


def migrate(database: Database, *arguments: str) -> str:
    return manage({**os.environ, "DATABASE_URL": database.url}, *arguments)


def types(database: Database) -> dict[str, int]:
    with psycopg.connect(database.url) as connection:
        return {str(model): int(pk) for pk, model in connection.execute(TYPES).fetchall()}


def granted(database: Database) -> set[str]:
    """The operator's permissions of rows, as processes of that release read them."""
    with database.rows():
        operator = User.objects.only("id", "is_active").get(email="operator@demo.test")
        operator.is_superuser = False
        permissions = ModelBackend().get_all_permissions(operator)
    return {each for each in permissions if "brake" in each or "heldsuspension" in each}


def test_no_statement_names_the_table(before: Database) -> None:
    sql = migrate(before, "sqlmigrate", "licensing", "0016")
    assert "licensing_brake" not in sql
    assert "ALTER" not in sql


def test_both_names_are_understood_and_the_migration_goes_back_and_forth(before: Database) -> None:
    known = types(before)
    assert granted(before) == BRAKES
    now = {}
    for target in ((), ("licensing", "0015"), (), ()):
        migrate(before, "migrate", *target)
        now = types(before)
        # The previous release makes a content type without permissions if it finds none.
        assert {name: now[name] for name in known} == known
        assert granted(before) == BRAKES | HELD
    assert now.keys() - known.keys() == {"heldsuspension", "servicenotice"}
    with before.rows():
        assert Permission.objects.filter(content_type_id=now["heldsuspension"]).count() == 4
        assert HeldSuspension.objects.get().job == "expire_grace"


def test_a_new_database_knows_the_new_name_alone(django_db_blocker: DjangoDbBlocker) -> None:
    with new_database(django_db_blocker.unblock) as database:
        migrate(database, "migrate")
        assert {"heldsuspension", "brake"} & types(database).keys() == {"heldsuspension"}
