"""Licences: two axes, one answer, and changes that say why."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from accounts.audit import Actor
from accounts.models import AuditEvent, Client
from config.platform.problems.problem import InvalidRequest
from licensing.licences import (
    create_client,
    expire_operator_decisions,
    set_customer,
    set_operator_status,
    set_terms,
    terms_of,
)
from licensing.models import Licence, Plan, Standing
from tests.pairing import each_once

pytestmark = pytest.mark.django_db
LATER = datetime(2127, 1, 31, tzinfo=UTC)


@pytest.fixture
def licence(organisation: Client) -> Licence:
    return Licence.objects.get(client=organisation)


def by_sql(assignments: str) -> Licence:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE licensing_licence SET {assignments}")
    return Licence.objects.get()


class TestDerivedColumns:
    def test_a_new_licence_is_active(self, licence: Licence) -> None:
        licence.refresh_from_db()
        assert (licence.status, licence.grace_until) == ("active", None)

    def test_billing_counts_where_no_operator_spoke(self, licence: Licence) -> None:
        changed = by_sql("billing_status = 'grace', billing_grace_until = '2127-01-31T00:00:00Z'")
        assert (changed.status, changed.grace_until) == ("grace", LATER)

    def test_the_operator_counts_before_billing(self, licence: Licence) -> None:
        changed = by_sql(
            "billing_status = 'grace', billing_grace_until = '2127-01-31T00:00:00Z', "
            "operator_status = 'suspended', operator_reason = 'court order'"
        )
        assert (changed.status, changed.grace_until) == ("suspended", None)

    def test_an_operators_active_hides_billings_suspension(self, licence: Licence) -> None:
        changed = by_sql(
            "billing_status = 'suspended', operator_status = 'active', operator_reason = 'goodwill'"
        )
        assert (changed.status, changed.grace_until) == ("active", None)

    @pytest.mark.parametrize(
        "assignments",
        [
            "billing_status = 'grace'",
            "operator_status = 'grace', operator_reason = 'x'",
            "operator_status = 'suspended'",
            "billing_status = 'paused'",
            "operator_status = 'paused', operator_reason = 'x'",
        ],
    )
    def test_half_a_change_is_refused_by_the_database(
        self, licence: Licence, assignments: str
    ) -> None:
        with pytest.raises(IntegrityError), transaction.atomic():
            by_sql(assignments)


class TestInstantsBySql:
    @pytest.mark.parametrize(
        ("instant", "column"),
        each_once(
            ["infinity", "-infinity", "12000-01-01", "0001-01-01 BC"],
            ["billing_grace_until", "operator_grace_until", "operator_until"],
        ),
    )
    def test_a_row_that_no_process_could_read_is_refused_by_the_database(
        self, licence: Licence, column: str, instant: str
    ) -> None:
        with pytest.raises(IntegrityError, match="licence_instants_are_readable"):
            by_sql(f"{column} = '{instant}'")

    @pytest.mark.parametrize("instant", ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"])
    def test_the_first_and_the_last_are_taken_and_read(
        self, licence: Licence, instant: str
    ) -> None:
        changed = by_sql(f"billing_status = 'grace', billing_grace_until = '{instant}+00'")
        assert changed.grace_until == datetime.fromisoformat(f"{instant}+00:00")


class TestEntitlementsBySql:
    @pytest.mark.parametrize(
        ("entitlements", "table"),
        each_once(
            [
                "ARRAY['a', NULL]",
                "ARRAY[NULL]",
                "ARRAY[['a', 'b'], ['c', 'd']]",
                "ARRAY[['a'], ['b']]",
            ],
            ["licensing_licence", "licensing_plan"],
        ),
    )
    def test_a_value_that_is_no_list_of_words_is_refused_by_the_database(
        self, licence: Licence, table: str, entitlements: str
    ) -> None:
        with (
            pytest.raises(IntegrityError, match="entitlements_are_a_list"),
            connection.cursor() as cursor,
        ):
            cursor.execute(f"UPDATE {table} SET entitlements = {entitlements}::varchar[]")

    @pytest.mark.parametrize("entitlements", [[], ["notes"], ["notes", "maps", "notes"]])
    def test_any_list_is_taken(self, licence: Licence, entitlements: list[str]) -> None:
        Licence.objects.update(entitlements=entitlements)
        Plan.objects.update(entitlements=entitlements)
        licence.refresh_from_db()
        licence.full_clean()
        licence.plan.full_clean()
        assert licence.all_entitlements == sorted(set(entitlements))


class TestRules:
    def test_a_client_is_made_with_its_licence(self, plan: Plan, by: Actor, now: datetime) -> None:
        client = create_client(name="Globex", plan=plan, by=by, now=now)
        assert Licence.objects.get(client=client).plan == plan
        event = AuditEvent.objects.get(action="client:created")
        assert (event.actor, event.target, event.after) == (by.name, "Globex", {"plan": "Starter"})

    def test_an_operators_decision_is_stored_and_audited(
        self, licence: Licence, by: Actor, now: datetime
    ) -> None:
        changed = set_operator_status(
            licence_id=licence.pk,
            status=Standing.GRACE,
            grace_until=LATER,
            reason="invoice in dispute",
            by=by,
            now=now,
        )
        assert (changed.status, changed.grace_until) == ("grace", LATER)
        event = AuditEvent.objects.get(action="licence:operator_set")
        assert event.reason == "invoice in dispute"
        assert event.before["status"] == "active"
        assert event.after == {
            "status": "grace",
            "operator_status": "grace",
            "grace_until": "2127-01-31T00:00:00Z",
        }

    def test_taking_it_back_lets_billing_count_again(
        self, licence: Licence, by: Actor, now: datetime
    ) -> None:
        set_operator_status(
            licence_id=licence.pk, status=Standing.SUSPENDED, reason="fraud", by=by, now=now
        )
        changed = set_operator_status(
            licence_id=licence.pk, status=None, reason="cleared", by=by, now=now
        )
        assert changed.status == "active"
        assert AuditEvent.objects.filter(action="licence:operator_cleared").exists()

    def test_no_decision_is_taken_back_where_there_is_none(
        self, licence: Licence, by: Actor, now: datetime
    ) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            set_operator_status(licence_id=licence.pk, status=None, reason="x", by=by, now=now)
        assert [fault.pointer for fault in refusal.value.errors] == ["/status"]
        changed_at = licence.changed_at
        licence.refresh_from_db()
        assert licence.changed_at == changed_at
        assert not AuditEvent.objects.filter(action__startswith="licence:").exists()

    def test_a_decision_with_an_end_expires_then(
        self, licence: Licence, by: Actor, now: datetime
    ) -> None:
        until = now + timedelta(days=1)
        set_operator_status(
            licence_id=licence.pk,
            status=Standing.SUSPENDED,
            reason="audit",
            ends_at=until,
            by=by,
            now=now,
        )
        assert expire_operator_decisions(by=by, now=until - timedelta(seconds=1)) == 0
        assert expire_operator_decisions(by=by, now=until) == 1
        licence.refresh_from_db()
        assert (licence.status, licence.operator_until) == ("active", None)
        event = AuditEvent.objects.get(action="licence:operator_cleared")
        assert event.actor == by.name

    @pytest.mark.parametrize(
        ("change", "pointer"),
        [
            ({"status": Standing.SUSPENDED, "reason": " "}, "/reason"),
            ({"status": Standing.GRACE, "reason": "x"}, "/grace_until"),
            ({"status": Standing.GRACE, "reason": "x", "grace_until": -1}, "/grace_until"),
            ({"status": Standing.ACTIVE, "reason": "x", "ends_at": -1}, "/ends_at"),
        ],
    )
    def test_an_incomplete_change_changes_nothing(
        self, licence: Licence, by: Actor, now: datetime, change: dict, pointer: str
    ) -> None:
        given = {
            name: now + timedelta(days=value) if isinstance(value, int) else value
            for name, value in change.items()
        }
        with pytest.raises(InvalidRequest) as refusal:
            set_operator_status(licence_id=licence.pk, by=by, now=now, **given)
        assert [fault.pointer for fault in refusal.value.errors] == [pointer]
        licence.refresh_from_db()
        assert licence.operator_status is None
        assert not AuditEvent.objects.filter(action__startswith="licence:").exists()

    def test_terms_change_with_a_reason_and_in_a_stable_order(
        self, licence: Licence, by: Actor, now: datetime
    ) -> None:
        plan = Plan.objects.create(name="Team", entitlements=["notes", "mail"])
        changed = set_terms(
            licence_id=licence.pk,
            plan=plan,
            entitlements=["sheets", "notes", "sheets"],
            reason="upgrade",
            by=by,
            now=now,
        )
        assert changed.all_entitlements == ["mail", "notes", "sheets"]
        after = AuditEvent.objects.get(action="licence:terms_set").after
        assert (after["plan"], after["entitlements"]) == ("Team", ["notes", "sheets"])

    @pytest.mark.parametrize("terms", [{"entitlements": ["mail"]}, {"plan": "Team"}, {}])
    def test_terms_that_are_not_given_are_unchanged(
        self, licence: Licence, by: Actor, now: datetime, terms: dict[str, Any]
    ) -> None:
        Licence.objects.update(entitlements=["notes"])
        if "plan" in terms:
            terms = {**terms, "plan": Plan.objects.create(name=terms["plan"])}
        licence.refresh_from_db()
        before = terms_of(licence)
        set_terms(licence_id=licence.pk, reason="x", by=by, now=now, **terms)
        licence.refresh_from_db()
        assert terms_of(licence) == {**before, **terms}
        event = AuditEvent.objects.get(action="licence:terms_set")
        assert event.before.keys() == event.after.keys() == before.keys()
        assert {name for name in before if event.before[name] != event.after[name]} == set(terms)

    def test_an_entitlement_that_no_app_can_have_is_refused_unless_it_was_there(
        self, licence: Licence, plan: Plan, by: Actor, now: datetime
    ) -> None:
        Licence.objects.update(entitlements=["Notes"])
        terms = {"plan": plan, "reason": "More.", "by": by, "now": now}
        set_terms(licence_id=licence.pk, entitlements=["Notes", "mail"], **terms)
        with pytest.raises(InvalidRequest) as refused:
            set_terms(licence_id=licence.pk, entitlements=["My_Notes", "mail"], **terms)
        assert "My_Notes" in refused.value.errors[0].detail
        licence.refresh_from_db()
        assert licence.entitlements == ["Notes", "mail"]

    @pytest.mark.parametrize("reason", ["", "  "])
    def test_terms_and_customer_want_a_reason_too(
        self, licence: Licence, plan: Plan, by: Actor, now: datetime, reason: str
    ) -> None:
        with pytest.raises(InvalidRequest):
            set_terms(
                licence_id=licence.pk,
                plan=plan,
                entitlements=["mail"],
                reason=reason,
                by=by,
                now=now,
            )
        with pytest.raises(InvalidRequest):
            set_customer(licence_id=licence.pk, customer_id="cus_1", reason=reason, by=by, now=now)
        licence.refresh_from_db()
        assert (licence.entitlements, licence.stripe_customer_id) == ([], "")
        assert not AuditEvent.objects.filter(action__startswith="licence:").exists()


@pytest.mark.parametrize("before", Standing)
@pytest.mark.parametrize("after", [None, *Standing])
@pytest.mark.parametrize("billing", Standing)
def test_an_operator_may_say_anything_after_anything_whatever_billing_says(
    licence: Licence,
    by: Actor,
    now: datetime,
    before: Standing,
    after: Standing | None,
    billing: Standing,
) -> None:
    billed = LATER if billing == Standing.GRACE else None
    Licence.objects.update(billing_status=billing, billing_grace_until=billed)
    for said in (before, after):
        changed = set_operator_status(
            licence_id=licence.pk,
            status=said,
            grace_until=now + timedelta(days=1) if said == Standing.GRACE else None,
            reason="x",
            by=by,
            now=now,
        )
        ends = {None: billed, Standing.GRACE: now + timedelta(days=1)}.get(said)
        assert (changed.status, changed.grace_until) == (said or billing, ends)
        event = AuditEvent.objects.order_by("-pk")[0]
        assert event.after["status"] == changed.status
        assert (changed.billing_status, changed.billing_grace_until) == (billing, billed)
