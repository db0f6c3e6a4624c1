"""Clients who pay, and a Stripe that can be asked."""

from collections.abc import Callable, Iterator
from datetime import datetime

import pytest

from accounts.audit import Actor
from licensing.licences import create_client, set_customer
from licensing.models import Licence, Plan
from tests.standins.stripe_server import KEY, Stripe, stripe_server

Paying = Callable[..., list[Licence]]


@pytest.fixture
def stripe(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stripe]:
    monkeypatch.setattr("licensing.subscriptions.RATE_LIMIT_WAITS", (0, 0, 0))
    monkeypatch.setattr("stripe.HTTPClient.INITIAL_DELAY", 0.01)
    monkeypatch.setattr("stripe.HTTPClient.MAX_DELAY", 0.01)
    with stripe_server() as server:
        settings.STRIPE_API_KEY = lambda: KEY
        settings.STRIPE_API_BASE = server.url
        yield server


@pytest.fixture
def paying(plan: Plan, by: Actor, now: datetime) -> Paying:
    """Makes clients with a customer each: ``cus_0``, ``cus_1`` …"""

    def make(number: int = 1) -> list[Licence]:
        licences = []
        for each in range(number):
            client = create_client(name=f"Client {each:03}", plan=plan, by=by, now=now)
            licences.append(
                set_customer(
                    licence_id=client.licence.pk,
                    customer_id=f"cus_{each}",
                    reason="They signed.",
                    by=by,
                    now=now,
                )
            )
        return licences

    return make
