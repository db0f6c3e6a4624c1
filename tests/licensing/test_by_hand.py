"""Changes by SQL leave an event; rules leave theirs alone, in this release and those before."""

import re
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor

from accounts.audit import Actor
from accounts.models import AuditEvent, Client
from licensing import tasks
from licensing.licences import create_client, set_customer, set_operator_status, set_terms
from licensing.models import Licence, Plan, Standing
from licensing.plans import PlanTerms, add_plan, change_plan
from tests.races import race

pytestmark = pytest.mark.django_db(transaction=True)
BY_HAND = "licence:changed_by_hand"
EVENT = (
    "INSERT INTO accounts_auditevent (at, action, actor, target, target_id, request_id, reason)"
    " VALUES (now(), 'licence:billing_set', 'x', 'x', %s, '', '')"
)


@pytest.fixture
def licence(plan: Plan, by: Actor, now: datetime) -> Licence:
    return create_client(name="Demo Company", plan=plan, by=by, now=now).licence


def actions(subject: str = "licence:") -> list[str]:
    events = AuditEvent.objects.filter(action__startswith=subject).order_by("id")
    return [event.action for event in events]


def sql(statement: str, *values: object) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return cursor.rowcount


def documented() -> str:
    page = (settings.BASE_DIR / "docs" / "operating.md").read_text()
    [statement] = re.findall(r"```sql\n(UPDATE licensing_licence .*?)```", page, re.DOTALL)
    return str(statement)


def test_the_documented_statement_suspends_and_is_audited(licence: Licence) -> None:
    assert sql(documented()) == 1
    licence.refresh_from_db()
    assert licence.status == "suspended"
    event = AuditEvent.objects.get(action=BY_HAND)
    with connection.cursor() as cursor:
        cursor.execute("SELECT session_user")
        assert event.actor == f"database role {cursor.fetchone()[0]}"
    assert (event.target, event.target_id) == ("Demo Company", str(licence.client_id))
    assert event.reason == "Contract ended."
    assert event.before["operator_status"] is None
    assert event.after["status"] == event.after["operator_status"] == "suspended"
    assert "plan_id" not in event.after


def test_each_change_by_hand_has_its_event_and_none_where_nothing_changed(licence: Licence) -> None:
    with transaction.atomic():
        for name in ("cus_1", "cus_1", "cus_2"):
            sql("UPDATE licensing_licence SET stripe_customer_id = %s", name)
    after = AuditEvent.objects.filter(action=BY_HAND).order_by("id").values_list("after", flat=True)
    assert list(after) == [{"stripe_customer_id": "cus_1"}, {"stripe_customer_id": "cus_2"}]


def test_a_change_that_is_rolled_back_has_none(licence: Licence) -> None:
    with transaction.atomic():
        sql(documented())
        transaction.set_rollback(True)
    assert actions() == []


def test_changes_by_rules_are_audited_once(
    licence: Licence, plan: Plan, by: Actor, now: datetime
) -> None:
    which: dict[str, Any] = {"licence_id": licence.pk, "by": by, "now": now, "reason": "x"}
    with transaction.atomic():
        # Inside of another transaction, so that the rules' own are savepoints.
        set_operator_status(status=Standing.SUSPENDED, **which)
        set_customer(customer_id="cus_1", **which)
    set_terms(plan=plan, entitlements=["notes"], **which)
    assert actions() == ["licence:operator_set", "licence:customer_set", "licence:terms_set"]


def test_a_change_by_a_rule_hides_nothing_of_another_licence(
    licence: Licence, plan: Plan, by: Actor, now: datetime
) -> None:
    other = create_client(name="Another", plan=plan, by=by, now=now).licence
    with transaction.atomic():
        sql("UPDATE licensing_licence SET entitlements = '{notes}' WHERE id = %s", other.pk)
        set_customer(licence_id=licence.pk, customer_id="cus_1", reason="x", by=by, now=now)
    assert sorted(actions()) == [BY_HAND, "licence:customer_set"]
    # Nor of the next transaction over this connection.
    sql(documented())
    assert actions().count(BY_HAND) == 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_release_before_which_writes_both_itself_is_told_once(
    licence: Licence, now: datetime, order: tuple[int, int]
) -> None:
    update = "UPDATE licensing_licence SET billing_status = 'suspended' WHERE client_id = %s"
    writes = ((update, licence.client_id), (EVENT, str(licence.client_id)))
    with transaction.atomic():
        for index in order:
            sql(writes[index][0], writes[index][1])
    assert actions() == ["licence:billing_set"]


SWITCHES = [
    "SELECT set_config('licensing.audited', %(client)s, true)",
    "SELECT set_config('licensing.audited', %(client)s, false)",
    "SET CONSTRAINTS ALL DEFERRED",
    "SET CONSTRAINTS ALL IMMEDIATE",
]


@pytest.mark.parametrize("switch", SWITCHES)
def test_no_setting_of_a_session_hides_a_change(licence: Licence, switch: str) -> None:
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(switch.replace("%(client)s", f"'{licence.client_id}'"))
            sql(documented())
    finally:
        sql("RESET licensing.audited")
    assert actions() == [BY_HAND]


def test_an_event_of_an_earlier_transaction_hides_nothing(
    licence: Licence, by: Actor, now: datetime
) -> None:
    for each in ("cus_1", "cus_2"):
        set_customer(licence_id=licence.pk, customer_id=each, reason="x", by=by, now=now)
    sql(documented())
    assert actions()[2:] == [BY_HAND]


def test_an_event_that_another_transaction_writes_meanwhile_hides_nothing(
    licence: Licence, now: datetime
) -> None:
    def meanwhile() -> None:
        # It begins later, as savepoints do, and has ended when the change is looked at.
        sql(EVENT, str(licence.client_id))

    with transaction.atomic():
        sql(documented())
        [ended] = race(meanwhile)
        assert ended is None
    assert actions() == ["licence:billing_set", BY_HAND]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_events_of_savepoints_are_of_their_transaction(licence: Licence, depth: int) -> None:
    with ExitStack() as stack:
        stack.enter_context(transaction.atomic())
        sql(documented())
        for _ in range(depth):
            stack.enter_context(transaction.atomic())
        sql(EVENT, str(licence.client_id))
    assert actions() == ["licence:billing_set"]


def test_an_event_that_was_rolled_back_hides_nothing(licence: Licence) -> None:
    with transaction.atomic():
        sql(documented())
        with transaction.atomic():
            sql(EVENT, str(licence.client_id))
            transaction.set_rollback(True)
    assert actions() == [BY_HAND]


def test_a_plan_is_audited_whatever_is_done_to_it(by: Actor, now: datetime) -> None:
    terms = PlanTerms(
        name="Large", entitlements=[], monthly_input_tokens=1, monthly_output_tokens=1,
        daily_tokens=None, is_default=True,
    )  # fmt: skip
    plan = add_plan(terms=terms, by=by, now=now)
    change_plan(plan_id=plan.pk, terms=replace(terms, daily_tokens=5), reason="x", by=by, now=now)
    assert set(actions("plan:")) == {"plan:added", "plan:changed"}
    sql("UPDATE licensing_plan SET monthly_output_tokens = NULL WHERE id = %s", plan.pk)
    sql("DELETE FROM licensing_plan WHERE id = %s", plan.pk)
    changed, deleted = AuditEvent.objects.filter(action="plan:changed_by_hand").order_by("id")
    assert (changed.target, changed.target_id) == ("Large", str(plan.pk))
    assert (changed.before, changed.after) == (
        {"monthly_output_tokens": 1},
        {"monthly_output_tokens": None},
    )
    assert deleted.before["name"] == "Large"
    assert deleted.after is None


def test_a_new_version_of_the_catalogue_is_no_change_of_a_plan(plan: Plan) -> None:
    before = Plan.objects.get().catalogue_version
    sql("UPDATE llmproxy_languagemodel SET output_limit = output_limit + 1")
    sql("UPDATE licensing_plan SET catalogue_version = gen_random_uuid()")
    assert Plan.objects.get().catalogue_version != before
    assert actions("plan:") == []


def test_the_migration_goes_back_and_forth_on_rows_that_are_there(licence: Licence) -> None:
    before = [
        ("usage", "0029_a_caller_disconnects"),
        ("licensing", "0014_changes_by_hand_are_audited"),
    ]
    try:
        MigrationExecutor(connection).migrate(before)
        sql(documented())
        assert actions() == [BY_HAND]
    finally:
        executor = MigrationExecutor(connection)
        executor.migrate(executor.loader.graph.leaf_nodes())
    sql("UPDATE licensing_licence SET operator_reason = 'again'")
    assert actions() == [BY_HAND, BY_HAND]


def test_a_client_that_is_deleted_takes_a_changed_licence_with_it(licence: Licence) -> None:
    with transaction.atomic():
        sql(documented())
        Client.objects.get(pk=licence.client_id).delete()
    assert actions() == []


@pytest.mark.parametrize("ends", [{"grace_until": "suspended"}, {"ends_at": "active"}])
def test_operators_decisions_end_with_the_workers_next_minute(
    licence: Licence, by: Actor, now: datetime, ends: dict[str, str]
) -> None:
    [(name, then)] = ends.items()
    given: dict[str, Any] = {
        "grace_until": now + timedelta(days=1),
        name: now + timedelta(seconds=1),
    }
    set_operator_status(
        licence_id=licence.pk, status=Standing.GRACE, reason="x", by=by, now=now, **given
    )
    sql(f"UPDATE licensing_licence SET operator_{'until' if name == 'ends_at' else name} = now()")
    tasks.expire_decisions(0)
    licence.refresh_from_db()
    assert licence.status == then
    assert actions()[-1] in {"licence:operator_set", "licence:operator_cleared"}
