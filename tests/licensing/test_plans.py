"""Plans are changed by a rule, for everybody on them."""

from dataclasses import replace
from datetime import datetime
from functools import partial

import pytest
from django.db import IntegrityError

from accounts.audit import Actor
from accounts.models import AuditEvent
from config.platform.problems.problem import InvalidRequest
from licensing.models import Plan
from licensing.plans import PlanTerms, add_plan, change_plan
from tests.races import race

pytestmark = pytest.mark.django_db

LARGER = PlanTerms(
    name="Larger",
    entitlements=["reports", "forms", "reports"],
    monthly_input_tokens=None,
    monthly_output_tokens=5_000_000,
    daily_tokens=0,
)


def test_a_plan_is_added_with_its_entitlements_in_order(by: Actor, now: datetime) -> None:
    plan = add_plan(terms=LARGER, by=by, now=now)
    plan.refresh_from_db()
    assert plan.entitlements == ["forms", "reports"]
    assert (plan.monthly_input_tokens, plan.daily_tokens) == (None, 0)
    event = AuditEvent.objects.get(action="plan:added")
    assert event.after is not None
    assert event.after["monthly_output_tokens"] == 5_000_000


def test_a_change_says_what_was_before(plan: Plan, by: Actor, now: datetime) -> None:
    terms = replace(PlanTerms.of(plan), monthly_input_tokens=600_000)
    change_plan(plan_id=plan.pk, terms=terms, reason="More for all.", by=by, now=now)
    event = AuditEvent.objects.get(action="plan:changed")
    assert event.before is not None
    assert event.after is not None
    assert event.before["monthly_input_tokens"] == 500_000
    assert event.after["monthly_input_tokens"] == 600_000
    assert event.reason == "More for all."


def test_one_plan_at_most_is_for_new_clients_and_the_next_takes_its_place(
    plan: Plan, by: Actor, now: datetime
) -> None:
    assert plan.is_default
    larger = add_plan(terms=replace(LARGER, is_default=True), by=by, now=now)
    assert [*Plan.objects.filter(is_default=True)] == [larger]
    event = AuditEvent.objects.get(action="plan:changed", target_id=str(plan.pk))
    assert (event.before, event.after) == ({"is_default": True}, {"is_default": False})
    terms = replace(PlanTerms.of(larger), is_default=False)
    change_plan(plan_id=larger.pk, terms=terms, reason="None is.", by=by, now=now)
    assert not Plan.objects.filter(is_default=True).exists()
    with pytest.raises(IntegrityError, match="plan_default_is_one"):
        Plan.objects.update(is_default=True)


@pytest.mark.django_db(transaction=True)
def test_the_last_of_several_plans_for_new_clients_at_once_is_it(
    plan: Plan, by: Actor, now: datetime
) -> None:
    def add(name: str) -> Plan:
        return add_plan(terms=replace(LARGER, name=name, is_default=True), by=by, now=now)

    added = race(*(partial(add, f"Plan {number}") for number in range(4)))
    (default,) = Plan.objects.filter(is_default=True)
    assert default in added
    assert Plan.objects.count() == 5


def test_two_plans_cannot_have_one_name(plan: Plan, by: Actor, now: datetime) -> None:
    with pytest.raises(InvalidRequest) as refused:
        add_plan(terms=replace(LARGER, name=plan.name), by=by, now=now)
    assert refused.value.errors[0].pointer == "/name"
    assert not AuditEvent.objects.exists()


@pytest.mark.parametrize(
    "word", ["Notes", "my_notes", "-notes", "notes-", "my--notes", "", "notes\n"]
)
def test_a_plan_gives_no_app_that_cannot_be(
    plan: Plan, by: Actor, now: datetime, word: str
) -> None:
    terms = replace(LARGER, entitlements=["forms", word])
    with pytest.raises(InvalidRequest) as refused:
        add_plan(terms=terms, by=by, now=now)
    assert [fault.pointer for fault in refused.value.errors] == ["/entitlements"]
    with pytest.raises(InvalidRequest):
        change_plan(plan_id=plan.pk, terms=terms, reason="More.", by=by, now=now)
    assert not AuditEvent.objects.exists()


def test_an_entitlement_that_a_plan_already_has_is_not_refused(
    plan: Plan, by: Actor, now: datetime
) -> None:
    Plan.objects.update(entitlements=["Notes", "forms"])
    plan.refresh_from_db()
    for entitlements in (["mail", "Notes"], ["mail"]):
        terms = replace(PlanTerms.of(plan), daily_tokens=5, entitlements=entitlements)
        plan = change_plan(plan_id=plan.pk, terms=terms, reason="More.", by=by, now=now)
        assert plan.entitlements == sorted(entitlements)


def test_a_change_requires_a_reason(plan: Plan, by: Actor, now: datetime) -> None:
    with pytest.raises(InvalidRequest):
        change_plan(plan_id=plan.pk, terms=LARGER, reason=" ", by=by, now=now)
    plan.refresh_from_db()
    assert plan.name == "Starter"
