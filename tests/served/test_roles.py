"""The service's role works with rows, and can do nothing to the tables that they stand in."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import sql

from accounts.audit import record
from accounts.models import AuditEvent
from accounts.worker.pruning import prune_audit_log
from tests.served.database import Database
from tests.served.people import BY, add_person
from tests.served.service import Service, manage
from tests.tools.owners import SERVICE


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE usage_usagerecord",
        "TRUNCATE accounts_auditevent",
        "DROP TABLE telemetry_event",
        "ALTER TABLE accounts_user ADD COLUMN door text",
        "ALTER TABLE accounts_auditevent DISABLE TRIGGER ALL",
        "DROP TRIGGER audit_is_append_only ON accounts_auditevent",
        "DROP TRIGGER change_by_hand_is_audited ON licensing_licence",
        "ALTER TABLE usage_budget DISABLE TRIGGER row_by_hand_is_audited",
        "ALTER FUNCTION audit_change_by_hand() RENAME TO something_else",
        (
            "CREATE TRIGGER mine BEFORE UPDATE ON accounts_auditevent FOR EACH ROW "
            "EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        ),
        "ALTER FUNCTION accounts_audit_is_append_only() RENAME TO something_else",
        (
            "CREATE OR REPLACE FUNCTION accounts_audit_is_append_only() RETURNS trigger "
            "LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'"
        ),
        "DELETE FROM accounts_auditevent",
        "UPDATE accounts_auditevent SET actor = 'somebody else'",
        "CREATE TABLE mine (number int)",
        "CREATE FUNCTION now() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.now()'",
        "SET session_replication_role = replica",
        "SET ROLE shell",
        "CREATE ROLE another SUPERUSER",
    ],
)
def test_a_forbidden_statement_is_refused(database: Database, statement: str) -> None:
    with psycopg.connect(database.service_url) as connection:
        connection.execute("SET accounts.pruning_audit = 'on'")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(sql.SQL(statement))


def test_every_process_of_the_service_has_it(service: Service, database: Database) -> None:
    said = "SELECT DISTINCT usename FROM pg_stat_activity WHERE application_name <> 'test'"
    with psycopg.connect(database.url, application_name="test") as connection:
        rows = connection.execute(f"{said} AND datname = current_database()").fetchall()
    assert [SERVICE] in [list(row) for row in rows]
    assert "and owns none" in service.manage("split_database_roles")


def test_the_job_prunes_the_audit_log_but_no_event_of_the_last_day(
    database: Database, service: Service
) -> None:
    now = datetime.now(UTC)
    with database.rows():
        record("client:created", by=BY, now=now - timedelta(days=100), target="long ago")
    assert "1 events older" in service.manage("prune_audit_log")
    with psycopg.connect(database.service_url) as connection:
        connection.execute("SELECT accounts_prune_audit('-infinity', 'infinity', 100000)")
    with database.rows():
        assert not AuditEvent.objects.filter(target="long ago").exists()
        assert AuditEvent.objects.filter(action="audit:pruned").exists()
        assert prune_audit_log(by=BY, now=now) == 0


def test_changes_by_hand_are_audited_whatever_its_session_settings(database: Database) -> None:
    person = add_person(database)
    with psycopg.connect(database.service_url) as connection:
        client = connection.execute(
            "SELECT client_id FROM accounts_user WHERE id = %s", [person.id]
        ).fetchone()
        assert client
        connection.execute("SELECT set_config('licensing.audited', %s, false)", [str(client[0])])
        connection.execute(
            "INSERT INTO usage_budget (client_id, monthly, spent) VALUES (%s, 1, 0)", client
        )
        connection.execute(
            "INSERT INTO usage_override (user_id, is_extra, starts_at, ends_at, reason, daily_tokens)"
            " VALUES (%s, true, now(), now() + interval '1 day', 'mine', 9)",
            [person.id],
        )
        connection.execute(
            "UPDATE licensing_licence SET entitlements = '{mine}' WHERE client_id = %s", client
        )
    with database.rows():
        told = AuditEvent.objects.filter(
            action__endswith="by_hand", target_id__in=[str(client[0]), str(person.id)]
        )
        assert {each.action for each in told} == {
            "client:budget_changed_by_hand",
            "override:changed_by_hand",
            "licence:changed_by_hand",
        }
        assert {each.actor for each in told} == {f"database role {SERVICE}"}


def test_tables_that_later_migrations_make_are_its_to_work_with(database: Database) -> None:
    with psycopg.connect(database.url, autocommit=True) as owner:
        owner.execute("CREATE TABLE later (number bigint GENERATED BY DEFAULT AS IDENTITY)")
        try:
            with psycopg.connect(database.service_url) as connection:
                connection.execute("INSERT INTO later DEFAULT VALUES")
                connection.execute("UPDATE later SET number = 2")
                connection.execute("DELETE FROM later")
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute("TRUNCATE later")
        finally:
            owner.execute("DROP TABLE later")


def test_migrate_alone_connects_as_the_owner(service: Service) -> None:
    elsewhere = {**service.environ, "DATABASE_OWNER_URL": "postgresql://owner@127.0.0.1:9/shell"}
    manage(elsewhere, "check", "--database", "default")
    with pytest.raises(AssertionError, match=r"get a connection|connection failed"):
        manage(elsewhere, "migrate", "--no-input")
