"""A caller who may not call is refused before anything else that is wrong with the call."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.cache import cache
from rest_framework.test import APIClient

from accounts.models import Client, User
from config.platform.periods import Period
from llmproxy.dialects import asking
from tests.ended import ENDS, end_access
from usage.models import MonthlyUsage, UsageRecord

pytestmark = pytest.mark.django_db
COMPLETE, STREAM = "/v1/llm/complete", "/v1/llm/stream"
GOOD = {"messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(autouse=True)
def no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here comes as far as a provider."""

    def asked(*_: Any, **__: Any) -> None:
        pytest.fail("a provider was asked")

    monkeypatch.setattr(asking, "DecodedExchange", asked)


@pytest.fixture(autouse=True)
def month(user: User) -> None:
    """They have called in this month: else nobody is admitted by the first statement, whatever it says of who calls."""
    period = Period.of(datetime.now(UTC))
    MonthlyUsage.objects.create(user=user, period=period.month, day=period.day)


def refused(api: APIClient, body: Any, path: str = COMPLETE) -> tuple[int, str]:
    response = api.post(path, body, format="json")
    return response.status_code, response.json()["code"]


def test_a_caller_with_access_comes_as_far_as_the_provider(signed_in: APIClient) -> None:
    """So nobody below was refused for want of one: the stand-in that fails the call is what calls meet."""
    assert refused(signed_in, GOOD) == (503, "service_unavailable")


@pytest.mark.parametrize("path", [COMPLETE, STREAM])
@pytest.mark.parametrize("how", ENDS)
def test_ended_access_is_refused_and_nothing_reserved(
    signed_in: APIClient, how: str, path: str, user: User
) -> None:
    end_access(how, user)
    assert refused(signed_in, GOOD, path) == (401, "access_revoked")
    assert not UsageRecord.objects.exists()
    assert not MonthlyUsage.objects.filter(output_reserved__gt=0).exists()


def test_a_suspended_licence_is_refused_and_nothing_reserved(
    signed_in: APIClient, user: User
) -> None:
    end_access("suspended", user)
    assert refused(signed_in, GOOD) == (403, "licence_suspended")
    assert not UsageRecord.objects.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": "none"},
        {**GOOD, "model": "gpt-unheard-of"},
        {**GOOD, "model": "\0"},
        {**GOOD, "max_tokens": -2},
    ],
    ids=["body", "model", "no model of a database", "limit"],
)
@pytest.mark.parametrize(
    ("how", "told"),
    [("session", (401, "access_revoked")), ("suspended", (403, "licence_suspended"))],
)
def test_a_caller_without_access_gets_no_other_fault(
    signed_in: APIClient, user: User, how: str, told: tuple[int, str], wrong: dict[str, Any]
) -> None:
    assert refused(signed_in, wrong) not in {(401, "access_revoked"), (403, "licence_suspended")}
    end_access(how, user)
    assert refused(signed_in, wrong) == told


def test_a_caller_without_access_does_not_see_the_rate_limit(
    signed_in: APIClient, user: User, settings: Any
) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "llm.user": "1/h"}
    cache.clear()
    assert refused(signed_in, {"messages": "none"})[0] == 400
    assert refused(signed_in, GOOD) == (429, "rate_limited")
    end_access("suspended", user)
    assert refused(signed_in, GOOD) == (403, "licence_suspended")


def test_a_revoked_token_does_not_count_against_the_rate_limit(
    signed_in: APIClient, user: User, settings: Any
) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "llm.user": "2/h"}
    cache.clear()
    end_access("epoch", user)
    for body in ({**GOOD, "model": "\0"}, GOOD, {"messages": "none"}, GOOD):
        assert refused(signed_in, body) == (401, "access_revoked")
    # As its holder has with another token.
    User.objects.update(epoch=0)
    for _ in range(2):
        assert refused(signed_in, {"messages": "none"})[0] == 400
    assert refused(signed_in, GOOD) == (429, "rate_limited")


@pytest.mark.parametrize("method", ["get", "put", "delete", "options"])
def test_a_caller_without_access_does_not_see_the_allowed_methods(
    signed_in: APIClient, user: User, method: str
) -> None:
    end_access("session", user)
    assert getattr(signed_in, method)(COMPLETE).json()["code"] == "access_revoked"


def test_a_restored_licence_works_at_once(
    signed_in: APIClient, user: User, organisation: Client
) -> None:
    User.objects.update(client=None)
    assert refused(signed_in, GOOD) == (401, "access_revoked")
    User.objects.update(client=organisation)
    assert refused(signed_in, {"messages": "none"})[0] == 400
