"""The one limit per person: for whatever has none of its own, and never a second count of a poll."""

import pytest
from django.core.cache import caches
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from config.platform.edge.ratelimits.cache import CounterCache

pytestmark = pytest.mark.django_db

REST = ["/v1/usage/me", "/v1/llm/models", "/v1/connections", "/v1/apps/notes/manifest"]
# Counted under another name.
APART = ["/v1/license/status", "/v1/auth/me", "/v1/auth/sessions"]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A name for each round trip to the counters."""
    trips: list[str] = []
    real = CounterCache.add

    def add(self: CounterCache, *args: object, **kwargs: object) -> bool:
        trips.append("add")
        return real(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(CounterCache, "add", add)
    assert isinstance(caches["default"], CounterCache)
    return trips


def test_everything_else_of_a_person_shares_one_limit(
    signed_in: APIClient, settings: Settings
) -> None:
    settings.RATE_LIMITS = {"api.user": f"{len(REST)}/h"}
    for path in REST:
        assert signed_in.get(path).status_code in {200, 403}, path
    refused = signed_in.get(REST[0])
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert int(refused["Retry-After"]) >= 1
    # A refusal is not a reason to stop what has a limit of its own.
    assert signed_in.post("/v1/telemetry", {"events": []}, format="json").status_code == 202
    assert all(signed_in.get(path).status_code == 200 for path in APART)


def test_a_poll_of_the_licence_is_counted_once(
    signed_in: APIClient, settings: Settings, counted: list[str]
) -> None:
    settings.RATE_LIMITS = {"api.user": "1/h"}
    for _ in range(5):
        assert signed_in.get("/v1/license/status").status_code == 200
    assert len(counted) == 5


def test_a_batch_and_a_call_are_counted_once(signed_in: APIClient, counted: list[str]) -> None:
    signed_in.post("/v1/telemetry", {"events": []}, format="json")
    assert len(counted) == 1
    signed_in.post("/v1/llm/complete", {"messages": []}, format="json")
    assert len(counted) == 2


def test_nobody_is_counted_without_a_token(signed_in: APIClient, settings: Settings) -> None:
    settings.RATE_LIMITS = {"api.user": "1/h"}
    assert signed_in.get("/v1/usage/me").status_code == 200
    assert signed_in.get("/v1/usage/me").status_code == 429
    # Without a token nobody is counted.
    signed_in.credentials()
    assert all(signed_in.get("/v1/usage/me").status_code == 401 for _ in range(3))
