"""Rows for each kind of attention about licences."""

import pytest

from accounts.audit import record
from accounts.models import User
from accounts.seats import SeatsExhausted, within_seats
from licensing.models import HeldSuspension, Licence
from tests.console.bad_days import Day

# Kinds of the worst day alone.
QUIET = {"seats", "devices"}


def bad_day(day: Day) -> None:
    HeldSuspension.objects.create(
        job="expire_grace", licence_ids=[1, 2], clients=2, noticed_at=day.now
    )
    Licence.objects.exclude(client=day.world.client).delete()


def worst_day(day: Day) -> None:
    """A full licence."""
    client, refused = day.world.client, day.world.people[5]
    Licence.objects.filter(client=client).update(seats=1, devices=1)
    record("session:device_refused", refused, by=day.by, now=day.now, after={"limit": 1})
    with pytest.raises(SeatsExhausted), within_seats(client, by=day.by, now=day.now):
        User.objects.create(email="one-more@acme.test", client=client)
