"""Overrides: granted and ended by rules, and what they do to caps."""

from datetime import UTC, datetime, timedelta

import pytest

from accounts.audit import Actor
from accounts.models import AuditEvent, User
from config.platform.problems.problem import InvalidRequest
from usage.limits import PlanCaps, balance, effective_of_all
from usage.models import Override
from usage.overrides import Allowance, end_override, grant_extra, grant_override

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
    return balance(user_id=user.pk, plan=PLAN, now=at)[1:4]  # type: ignore[return-value]


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


def test_the_latest_of_several_counts_alone(user: User, by: Actor, now: datetime) -> None:
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


def test_ending_an_override_requires_a_reason(user: User, by: Actor, now: datetime) -> None:
    override = grant(user, by, now, daily_tokens=1)
    with pytest.raises(InvalidRequest):
        end_override(override_id=override.pk, reason="", by=by, now=now)


def extra(user: User, by: Actor, now: datetime, **numbers: int) -> Override:
    return grant_extra(
        user_id=user.pk,
        allowance=Allowance(**numbers),
        ends_at=now + timedelta(hours=2),
        reason="A large report.",
        by=by,
        now=now,
    )


class TestExtraAllowances:
    @pytest.fixture
    def now(self) -> datetime:
        return datetime(2026, 11, 20, 12, tzinfo=UTC)

    def test_an_extra_allowance_is_added_to_the_plan_until_its_end(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        extra(user, by, now, monthly_output_tokens=50_000)
        assert caps(user, now) == (500_000, 150_000, 100_000)
        assert caps(user, now + timedelta(hours=2)) == (500_000, 100_000, 100_000)

    def test_several_add_up_on_top_of_an_override(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        extra(user, by, now, monthly_input_tokens=1_000, daily_tokens=10)
        grant(user, by, now, monthly_input_tokens=900_000)
        last = extra(user, by, now, monthly_input_tokens=2_000)
        assert caps(user, now) == (903_000, 100_000, 100_010)
        end_override(override_id=last.pk, reason="Enough.", by=by, now=now)
        assert caps(user, now + timedelta(seconds=1)) == (901_000, 100_000, 100_010)

    def test_a_daily_limit_that_follows_the_month_grows_with_it(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        extra(user, by, now, monthly_output_tokens=150_000, daily_tokens=7)
        plan = PlanCaps(monthly_input=500_000, monthly_output=100_000, daily=None)
        assert balance(user_id=user.pk, plan=plan, now=now)[1:4] == (500_000, 250_000, 50_007)

    def test_no_allowance_stands_on_top_of_no_cap(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        extra(user, by, now, monthly_output_tokens=1, monthly_input_tokens=1, daily_tokens=1)
        none = PlanCaps(monthly_input=None, monthly_output=None, daily=None)
        assert balance(user_id=user.pk, plan=none, now=now)[1:4] == (None, None, None)

    def test_its_audit_event_is_that_of_an_extra_allowance(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        override = extra(user, by, now, daily_tokens=5)
        event = AuditEvent.objects.get(action="override:extra_granted")
        assert (event.target_id, event.reason) == (str(user.pk), "A large report.")
        assert event.after == {"daily_tokens": 5, "ends_at": "2026-11-20T14:00:00Z"}
        assert Override.objects.get().is_extra
        assert end_override(override_id=override.pk, reason="Enough.", by=by, now=now)

    @pytest.mark.parametrize(
        ("numbers", "ends_at", "pointer"),
        [
            ({"daily_tokens": 0}, datetime(2026, 11, 25, tzinfo=UTC), ""),
            ({}, datetime(2026, 11, 25, tzinfo=UTC), ""),
            ({"daily_tokens": 10**15 + 1}, datetime(2026, 11, 25, tzinfo=UTC), "/daily_tokens"),
            ({"daily_tokens": 1}, datetime(2026, 12, 1, 0, 0, 1, tzinfo=UTC), "/ends_at"),
        ],
    )
    def test_an_extra_allowance_is_a_number_for_this_month(
        self,
        user: User,
        by: Actor,
        now: datetime,
        numbers: dict[str, int],
        ends_at: datetime,
        pointer: str,
    ) -> None:
        with pytest.raises(InvalidRequest) as refused:
            grant_extra(
                user_id=user.pk,
                allowance=Allowance(**numbers),
                ends_at=ends_at,
                reason="x",
                by=by,
                now=now,
            )
        assert [fault.pointer for fault in refused.value.errors] == [pointer]

    def test_an_allowance_may_last_until_the_end_of_the_month(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        december = datetime(2026, 12, 1, tzinfo=UTC)
        grant_extra(
            user_id=user.pk,
            allowance=Allowance(monthly_input_tokens=1),
            ends_at=december,
            reason="x",
            by=by,
            now=now,
        )
        assert caps(user, december - timedelta(seconds=1))[0] == 500_001
        assert caps(user, december)[0] == 500_000

    def test_the_caps_of_several_people_are_those_of_each(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        other = User.objects.create_user("bert@acme.test", client=user.client)
        nobody = User.objects.create_user("operator@acme.test")
        extra(user, by, now, monthly_input_tokens=1)
        grant(other, by, now, daily_tokens=9)
        found = effective_of_all(user_ids=[user.pk, other.pk, nobody.pk], now=now)
        assert found == {
            user.pk: (500_001, 100_000, 100_000),
            other.pk: (500_000, 100_000, 9),
        }
