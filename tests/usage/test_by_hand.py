"""Budgets and overrides that SQL changes leave an event; rules, the worker and deletions leave theirs alone."""

from datetime import datetime, timedelta

import pytest
from django.db import connection, transaction

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from accounts.people.access import delete_user
from accounts.people.clients import delete_client
from usage.models import Budget, Override
from usage.overrides import Allowance, end_override, grant_override
from usage.spending.budgets import set_budget, watch

pytestmark = pytest.mark.django_db(transaction=True)
OVERRIDE, BUDGET = "override:changed_by_hand", "client:budget_changed_by_hand"
ALLOWANCE = Allowance(monthly_input_tokens=1, monthly_output_tokens=1, daily_tokens=1)


def told() -> list[str]:
    """Events by hand, in order."""
    by_hand = AuditEvent.objects.filter(action__endswith="by_hand").order_by("id")
    return list(by_hand.values_list("action", flat=True))


def sql(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)


def test_changes_by_rules_and_the_worker_are_audited_once(
    user: User, organisation: Client, by: Actor, now: datetime
) -> None:
    for monthly in (10**9, 2 * 10**9, None, 10**9):
        set_budget(client_id=organisation.pk, monthly=monthly, reason="x", by=by, now=now)
    watch(now=now)
    assert Budget.objects.get().summed_at is not None
    ends_at = now + timedelta(days=1)
    given = grant_override(
        user_id=user.pk, allowance=ALLOWANCE, ends_at=ends_at, reason="x", by=by, now=now
    )
    end_override(override_id=given.pk, reason="x", by=by, now=now)
    assert told() == []


def test_a_budget_set_by_hand_is_audited(organisation: Client) -> None:
    sql("INSERT INTO usage_budget (client_id, monthly, spent) VALUES (%s, 5, 0)", organisation.pk)
    sql("UPDATE usage_budget SET monthly = 7")
    sql("UPDATE usage_budget SET spent = 1")
    sql("DELETE FROM usage_budget")
    added, changed, removed = AuditEvent.objects.filter(action=BUDGET).order_by("id")
    assert {each.target for each in (added, changed, removed)} == {"Acme"}
    assert (added.before, added.after["monthly"]) == (None, 5)
    assert (changed.before, changed.after) == ({"monthly": 5}, {"monthly": 7})
    assert (removed.before["monthly"], removed.after) == (7, None)
    assert changed.actor.startswith("database role ")


def test_an_override_made_by_hand_is_audited(user: User) -> None:
    sql(
        "INSERT INTO usage_override (user_id, is_extra, starts_at, ends_at, reason, daily_tokens)"
        " VALUES (%s, true, now(), now() + interval '1 day', 'why not', 9)",
        user.pk,
    )
    sql("SELECT set_config('licensing.audited', %s, false)", str(user.pk))
    sql("UPDATE usage_override SET daily_tokens = 99")
    sql("DELETE FROM usage_override")
    events = AuditEvent.objects.filter(action=OVERRIDE).order_by("id")
    assert [each.target for each in events] == [user.email] * 3
    assert [each.reason for each in events] == ["why not"] * 3
    assert events[1].after == {"daily_tokens": 99}


def test_an_event_about_another_person_hides_nothing(user: User, by: Actor, now: datetime) -> None:
    ends_at = now + timedelta(days=1)
    other = User.objects.create_user("other@acme.test", client=user.client)
    for each in (user, other):
        grant_override(
            user_id=each.pk, allowance=ALLOWANCE, ends_at=ends_at, reason="x", by=by, now=now
        )
    with transaction.atomic():
        end_override(override_id=Override.objects.get(user=other).pk, reason="x", by=by, now=now)
        sql("UPDATE usage_override SET daily_tokens = 99 WHERE user_id = %s", user.pk)
    assert told() == [OVERRIDE]


def test_rows_deleted_with_their_owner_have_no_event_of_their_own(
    user: User, organisation: Client, by: Actor, now: datetime
) -> None:
    ends_at = now + timedelta(days=1)
    grant_override(
        user_id=user.pk, allowance=ALLOWANCE, ends_at=ends_at, reason="x", by=by, now=now
    )
    set_budget(client_id=organisation.pk, monthly=10**9, reason="x", by=by, now=now)
    delete_user(user_id=user.pk, reason="x", by=by, now=now)
    delete_client(client_id=organisation.pk, reason="x", by=by, now=now)
    assert not (Override.objects.exists())
    assert not (Budget.objects.exists())
    assert told() == []
