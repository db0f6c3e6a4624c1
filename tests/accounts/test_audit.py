"""The log cannot be changed, emptied or thinned out, by whom it must not be."""

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib import import_module

import psycopg
import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from accounts.audit import Actor, record
from accounts.models import AuditEvent
from tests.tools.owners import as_superuser

pytestmark = pytest.mark.django_db

PRUNING = "SET LOCAL accounts.pruning_audit = 'on'"
SETTING = "SELECT coalesce(current_setting('accounts.pruning_audit', true), '')"


@pytest.fixture
def event(by: Actor, now: datetime) -> AuditEvent:
    record("client:created", by=by, now=now, target="Acme")
    return AuditEvent.objects.get()


def attempt(*statements: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.mark.parametrize(
    "statements",
    [
        ("UPDATE accounts_auditevent SET actor = 'somebody else'",),
        ("DELETE FROM accounts_auditevent",),
        ("TRUNCATE accounts_auditevent",),
        (PRUNING, "UPDATE accounts_auditevent SET actor = 'somebody else'"),
        (PRUNING, "TRUNCATE accounts_auditevent"),
    ],
    ids=["change", "delete", "empty", "change while pruning", "empty while pruning"],
)
def test_the_owner_of_the_table_is_refused_too(
    event: AuditEvent, statements: tuple[str, ...]
) -> None:
    with pytest.raises(IntegrityError, match="append-only"):
        attempt(*statements)
    event.refresh_from_db()
    assert event.actor == "operator@shell.test"


def test_the_orm_is_refused_as_well(event: AuditEvent) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        event.save()
    with pytest.raises(IntegrityError), transaction.atomic():
        event.delete()


def test_pruning_deletes_because_it_declares_itself(event: AuditEvent) -> None:
    attempt(PRUNING, "DELETE FROM accounts_auditevent")
    assert not AuditEvent.objects.exists()


def test_the_function_that_prunes_keeps_the_last_day_whatever_it_is_asked(
    by: Actor, now: datetime
) -> None:
    record("client:created", by=by, now=now - timedelta(hours=23), target="yesterday")
    record("client:created", by=by, now=now - timedelta(hours=25), target="the day before")
    attempt("SELECT accounts_prune_audit('-infinity', 'infinity', 100)")
    assert AuditEvent.objects.get().target == "yesterday"


@pytest.mark.parametrize("before", ["", "on", "off"])
def test_the_function_leaves_the_setting_as_it_was(
    event: AuditEvent, before: str, by: Actor, now: datetime
) -> None:
    record("client:created", by=by, now=now - timedelta(days=2), target="old")
    with transaction.atomic(), connection.cursor() as cursor:
        if before:
            cursor.execute("SELECT set_config('accounts.pruning_audit', %s, true)", [before])
        cursor.execute("SELECT removed FROM accounts_prune_audit('-infinity', 'infinity', 100)")
        assert cursor.fetchone() == (1,)
        cursor.execute(SETTING)
        assert (cursor.fetchone() or ("",))[0] == before


def test_the_function_that_fails_leaves_the_log_closed(event: AuditEvent) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        with pytest.raises(DatabaseError, match="must not be negative"):
            attempt("SELECT accounts_prune_audit('-infinity', 'infinity', -1)")
        cursor.execute(SETTING)
        assert cursor.fetchone() != ("on",)
        # An operator's function may catch the error itself, too.
        cursor.execute(
            "DO $$ BEGIN PERFORM accounts_prune_audit('-infinity', 'infinity', -1);"
            " EXCEPTION WHEN OTHERS THEN NULL; END $$"
        )
        with pytest.raises(IntegrityError, match="append-only"):
            attempt("DELETE FROM accounts_auditevent")


def test_the_function_is_made_by_whoever_owns_the_tables() -> None:
    """Only a superuser may make or restore a function with a setting of our own at it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
            " AND EXISTS (SELECT FROM unnest(proconfig) AS one WHERE one NOT LIKE 'search_path=%')"
        )
        assert cursor.fetchall() == []


@pytest.fixture(scope="module")
def careful() -> Iterator[None]:
    """Roles of a service and of somebody who reads reports."""
    names = "careful_service", "careful_reports"
    with psycopg.connect(as_superuser(os.environ["DATABASE_URL"]), autocommit=True) as superuser:
        for name in names:
            superuser.execute(f"CREATE ROLE {name}")
        yield
        for name in names:
            superuser.execute(f"DROP ROLE {name}")


@pytest.mark.usefixtures("careful")
def test_a_role_that_pruned_before_the_upgrade_goes_on_by_the_function() -> None:
    upgrade = import_module("accounts.migrations.0001_squashed_0026_second_factors").ONLY_PRUNED
    attempt(
        "GRANT SELECT, INSERT, DELETE ON accounts_auditevent TO careful_service",
        "GRANT SELECT ON accounts_auditevent TO careful_reports",
        upgrade,
    )
    function = "accounts_prune_audit(timestamptz, timestamptz, integer)"
    may = (
        "SELECT has_function_privilege(%(role)s, %(function)s, 'EXECUTE'),"
        " has_table_privilege(%(role)s, 'accounts_auditevent', 'DELETE')"
    )
    for role, prunes in (("careful_service", True), ("careful_reports", False)):
        with connection.cursor() as cursor:
            cursor.execute(may, {"role": role, "function": function})
            assert cursor.fetchone() == (prunes, False)


def test_the_events_that_operators_look_for_are_found_by_index(by: Actor, now: datetime) -> None:
    conditions = {
        "audit_by_action": "action LIKE 'licence:%%'",
        "audit_by_actor_name": "UPPER(actor) LIKE UPPER('ada@%%')",
        "audit_by_target_name": "UPPER(target) LIKE UPPER('acme%%')",
        "audit_by_request": "request_id = 'abc'",
        "audit_by_address": "address = '192.0.2.1'",
        "audit_by_target": "target_id = 'abc'",
        "audit_newest_first": "at < now() ORDER BY at DESC LIMIT 1",
    }
    with connection.cursor() as cursor:
        # The planner shows the indexes that it can use, not its preference for an empty table.
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        for index, condition in conditions.items():
            statement = f"EXPLAIN SELECT * FROM accounts_auditevent WHERE {condition}"
            cursor.execute(statement.replace("%%", "%"))
            assert index in "\n".join(line for (line,) in cursor.fetchall()), index
