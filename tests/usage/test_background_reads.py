"""Whole answers that are read on after their client has left: a few of a person, over all processes."""

from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

import pytest

from accounts.models import User
from tests.races import race
from tests.usage.ledger import settle
from tests.usage.test_stops import ask
from usage.caps import begin_background_read
from usage.costs import Spent
from usage.models import UsageRecord

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
MOST = 4


def begin(user: User, record_id, *, now: datetime = NOW) -> bool:
    return begin_background_read(record_id=record_id, user_id=user.pk, most=MOST, now=now)


@pytest.mark.django_db
class TestPlaces:
    def test_a_place_is_free_again_once_its_call_settles(self, user: User) -> None:
        calls = [ask(user).record_id for _ in range(MOST + 1)]
        assert [begin(user, call) for call in calls] == [True] * MOST + [False]
        settle(
            record_id=calls[0],
            user_id=user.pk,
            spent=Spent(input=1, output=1),
            source=UsageRecord.Source.PROVIDER,
            end=UsageRecord.End.CLIENT_GONE,
            now=NOW,
        )
        assert begin(user, calls[-1])

    def test_a_call_of_a_dead_process_keeps_its_place_until_it_expires(self, user: User) -> None:
        for _ in range(MOST):
            assert begin(user, ask(user).record_id)
        later = UsageRecord.objects.earliest("expires_at").expires_at
        assert not begin(user, ask(user).record_id, now=later - timedelta(seconds=1))
        assert begin(user, ask(user, now=later).record_id, now=later)

    def test_places_are_counted_per_person(self, user: User) -> None:
        other = User.objects.create_user("other@example.com")
        for _ in range(MOST):
            assert begin(user, ask(user).record_id)
        assert begin(other, ask(other).record_id)

    def test_a_call_that_has_settled_takes_no_place(self, user: User) -> None:
        assert not begin(user, uuid4())


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("_", range(5))
def test_processes_that_notice_together_give_no_place_twice(user: User, _: int) -> None:
    calls = [ask(user).record_id for _ in range(8)]
    assert sum(map(bool, race(*(partial(begin, user, call) for call in calls)))) == MOST
