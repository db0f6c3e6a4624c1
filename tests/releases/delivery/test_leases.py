"""Leases: one holder at a time, an end by themselves, and no way back for who was overtaken."""

import pytest
from django.db import transaction
from django.db.models.functions import Now

from releases.delivery import leases
from releases.delivery.leases import PublishInProgress, PublishLease, take
from releases.models import ShellChannel
from tests.races import race

pytestmark = pytest.mark.django_db


def taken(channel: str = "stable") -> PublishLease:
    with transaction.atomic():
        return take(channel=channel)


def expire() -> None:
    ShellChannel.objects.update(leased_until=Now())


def test_a_channel_is_made_where_it_is_missing() -> None:
    assert taken().fence == 1
    assert ShellChannel.objects.get().leased_until is not None


def test_a_lease_is_one_per_channel() -> None:
    taken()
    with pytest.raises(PublishInProgress) as refusal:
        taken()
    assert refusal.value.headers == {"Retry-After": "30"}
    assert taken("beta").fence == 1


def test_a_lease_that_was_given_back_is_free() -> None:
    taken().end()
    assert taken().fence == 2


def test_a_lease_expires_and_its_holder_is_informed() -> None:
    late = taken()
    expire()
    late.renew()
    expire()
    next_one = taken()
    for step in (late.renew, late.end):
        with pytest.raises(PublishInProgress):
            step()
    next_one.end()


def test_keeping_a_lease_asks_the_database_now_and_then_only(
    django_assert_num_queries: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = taken()
    with django_assert_num_queries(0):  # type: ignore[operator]
        lease.keep()
    monkeypatch.setattr(leases, "RENEW_AFTER", -1.0)
    expire()
    with django_assert_num_queries(1):  # type: ignore[operator]
        lease.keep()
    with pytest.raises(PublishInProgress):
        taken()


@pytest.mark.django_db(transaction=True)
def test_exactly_one_of_many_who_ask_at_once_gets_it() -> None:
    for round_ in range(1, 11):
        results = race(*[taken] * 8)
        got = [each for each in results if isinstance(each, PublishLease)]
        assert [each.fence for each in got] == [round_]
        assert all(isinstance(each, PublishInProgress) for each in results if each not in got)
        got[0].end()
