"""Overrides: granted and ended by rules, and what they do to caps."""

from datetime import datetime, timedelta

import pytest

from accounts.audit import Actor
from accounts.models import AuditEvent, User
from config.problems import InvalidRequest
from usage.caps import PlanCaps, effective
from usage.models import Override
from usage.overrides import Allowance, end_override, grant_override

pytestmark = pytest.mark.django_db

PLAN = PlanCaps(monthly_input=500_000, monthly_output=100_000, daily=100_000)
WEEK = timedelta(days=7)


def grant(user: User, by: Actor, now: datetime, **numbers: int) -> Override:
    return grant_override(
        user_id=user.pk,
        allowance=Allowance(**numbers),
        ends_at=now + WEEK,
        reason="Quarter end.",
        by=by,
        now=now,
    )


def caps(user: User, at: datetime) -> tuple[int | None, int | None, int | None]:
    return tuple(effective(user_id=user.pk, plan=PLAN, now=at))  # type: ignore[return-value]


def test_an_override_counts_until_its_end_and_not_longer(
    user: User, by: Actor, now: datetime
) -> None:
    grant(user, by, now, monthly_input_tokens=900_000)
    assert caps(user, now) == (900_000, 100_000, 100_000)
    assert caps(user, now + WEEK - timedelta(seconds=1)) == (900_000, 100_000, 100_000)
    assert caps(user, now + WEEK) == (500_000, 100_000, 100_000)


def test_nothing_is_a_number_too(user: User, by: Actor, now: datetime) -> None:
    grant(user, by, now, daily_tokens=0)
    assert caps(user, now) == (500_000, 100_000, 0)


def test_of_several_the_latest_counts_alone(user: User, by: Actor, now: datetime) -> None:
    grant(user, by, now, monthly_input_tokens=900_000)
    latest = grant(user, by, now, daily_tokens=200_000)
    assert caps(user, now) == (500_000, 100_000, 200_000)
    end_override(override_id=latest.pk, reason="Enough.", by=by, now=now)
    assert caps(user, now + timedelta(seconds=1)) == (900_000, 100_000, 100_000)


def test_granting_and_ending_are_written_down_under_the_person(
    user: User, by: Actor, now: datetime
) -> None:
    override = grant(user, by, now, daily_tokens=200_000)
    later = now + timedelta(hours=1)
    assert end_override(override_id=override.pk, reason="Enough.", by=by, now=later)
    ended, granted = AuditEvent.objects.filter(action__startswith="override:")
    assert (granted.action, ended.action) == ("override:granted", "override:ended")
    for event in (granted, ended):
        assert (event.target, event.target_id) == (user.email, str(user.pk))
    assert granted.after is not None
    assert ended.before == granted.after
    assert set(granted.after) == {"daily_tokens", "ends_at"}


def test_ending_twice_changes_nothing(user: User, by: Actor, now: datetime) -> None:
    override = grant(user, by, now, daily_tokens=1)
    assert end_override(override_id=override.pk, reason="Enough.", by=by, now=now)
    later = now + timedelta(hours=1)
    assert not end_override(override_id=override.pk, reason="Again.", by=by, now=later)
    assert AuditEvent.objects.filter(action="override:ended").count() == 1


@pytest.mark.parametrize(
    ("allowance", "ends_in", "reason", "pointers"),
    [
        (Allowance(daily_tokens=1), WEEK, " ", ["/reason"]),
        (Allowance(daily_tokens=1), timedelta(0), "x", ["/ends_at"]),
        (Allowance(), WEEK, "x", [""]),
        (Allowance(), -WEEK, "", ["/reason", "/ends_at", ""]),
    ],
)
def test_an_override_has_a_number_a_reason_and_an_end(
    user: User,
    by: Actor,
    now: datetime,
    allowance: Allowance,
    ends_in: timedelta,
    reason: str,
    pointers: list[str],
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        grant_override(
            user_id=user.pk,
            allowance=allowance,
            ends_at=now + ends_in,
            reason=reason,
            by=by,
            now=now,
        )
    assert [fault.pointer for fault in refused.value.errors] == pointers
    assert not Override.objects.exists()


def test_ending_wants_to_know_why(user: User, by: Actor, now: datetime) -> None:
    override = grant(user, by, now, daily_tokens=1)
    with pytest.raises(InvalidRequest):
        end_override(override_id=override.pk, reason="", by=by, now=now)
