"""Who may call is asked in the statement that admits the call, and told before anything else that is wrong with it."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from django.core.cache import cache
from django.db import connection
from rest_framework.test import APIClient

from accounts.models import Client, Session, User
from accounts.sessions import authentication
from licensing.callers import WHO_WORKS, load_caller
from licensing.models import Licence
from llmproxy import relay
from tests.ended import ENDS, end_access
from usage.models import MonthlyUsage, UsageRecord
from usage.periods import Period

pytestmark = pytest.mark.django_db
COMPLETE, STREAM = "/v1/llm/complete", "/v1/llm/stream"
GOOD = {"messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(autouse=True)
def no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here comes as far as a provider."""

    def asked(*_: Any, **__: Any) -> None:
        pytest.fail("a provider was asked")

    monkeypatch.setattr(relay, "Exchange", asked)
    authentication._revoked.clear()


@pytest.fixture(autouse=True)
def month(user: User) -> None:
    """They have called in this month: else nobody is admitted by the first statement, whatever it says of who calls."""
    period = Period.of(datetime.now(UTC))
    MonthlyUsage.objects.create(user=user, period=period.month, day=period.day)


def refused(api: APIClient, body: Any, path: str = COMPLETE) -> tuple[int, str]:
    response = api.post(path, body, format="json")
    return response.status_code, response.json()["code"]


@pytest.mark.parametrize("path", [COMPLETE, STREAM])
@pytest.mark.parametrize("how", ENDS)
def test_ended_access_is_refused_and_nothing_reserved(
    signed_in: APIClient, how: str, path: str, user: User
) -> None:
    end_access(how, user)
    assert refused(signed_in, GOOD, path) == (401, "access_revoked")
    assert not UsageRecord.objects.exists()
    assert not MonthlyUsage.objects.filter(output_reserved__gt=0).exists()
    # Also where it is known.
    assert refused(signed_in, GOOD, path) == (401, "access_revoked")


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
        {**GOOD, "max_tokens": 0},
    ],
    ids=["body", "model", "no model of a database", "limit"],
)
@pytest.mark.parametrize(
    ("how", "told"),
    [("session", (401, "access_revoked")), ("suspended", (403, "licence_suspended"))],
)
def test_who_may_not_call_hears_nothing_else(
    signed_in: APIClient, user: User, how: str, told: tuple[int, str], wrong: dict[str, Any]
) -> None:
    assert refused(signed_in, wrong) not in {(401, "access_revoked"), (403, "licence_suspended")}
    end_access(how, user)
    assert refused(signed_in, wrong) == told


def test_nor_that_the_limit_of_requests_is_reached(
    signed_in: APIClient, user: User, settings: Any
) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "llm.user": "1/h"}
    cache.clear()
    assert refused(signed_in, {"messages": "none"})[0] == 400
    assert refused(signed_in, GOOD) == (429, "rate_limited")
    end_access("suspended", user)
    assert refused(signed_in, GOOD) == (403, "licence_suspended")


def test_a_token_that_was_taken_away_spends_nothing_of_its_holders_limit(
    signed_in: APIClient, user: User, settings: Any
) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "llm.user": "2/h"}
    cache.clear()
    end_access("epoch", user)
    for body in ({**GOOD, "model": "\0"}, GOOD, {"messages": "none"}, GOOD):
        assert refused(signed_in, body) == (401, "access_revoked")
    # As its holder has with another token: one was counted before it was known.
    User.objects.update(epoch=0)
    authentication._revoked.clear()
    assert refused(signed_in, {"messages": "none"})[0] == 400
    assert refused(signed_in, GOOD) == (429, "rate_limited")


def test_there_is_room_for_so_many_that_were_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "REMEMBERED", 3)
    claims = [authentication.Claimed(uuid4(), uuid4(), 0) for _ in range(5)]
    for each in claims:
        with pytest.raises(authentication.AccessRevoked):
            each.caller()
    assert list(authentication._revoked) == claims[2:]


@pytest.mark.parametrize("method", ["get", "put", "delete", "options"])
def test_nor_what_else_there_might_be_to_ask(signed_in: APIClient, user: User, method: str) -> None:
    end_access("session", user)
    assert getattr(signed_in, method)(COMPLETE).json()["code"] == "access_revoked"


def test_who_gets_a_licence_back_is_asked_about_once(
    signed_in: APIClient, user: User, organisation: Client
) -> None:
    User.objects.update(client=None)
    assert refused(signed_in, GOOD) == (401, "access_revoked")
    assert len(authentication._revoked) == 1
    User.objects.update(client=organisation)
    assert refused(signed_in, {"messages": "none"})[0] == 400
    assert not authentication._revoked


@pytest.mark.parametrize("how", ["", "suspended", "grace", *ENDS])
def test_who_works_is_who_may_call_and_is_not_suspended(
    signed_in: APIClient, user: User, organisation: Client, how: str
) -> None:
    session = Session.objects.get()
    end_access(how, user)
    if how == "grace":
        Licence.objects.update(billing_status="grace", billing_grace_until=datetime.now(UTC))
    caller = load_caller(user_id=user.pk or session.user_id, session_id=session.pk)
    works = bool(caller and caller.may_call and caller.epoch == 0 and not caller.is_suspended)
    assert works == (how in {"", "grace"})
    with connection.cursor() as cursor:
        claimed = {"session": session.pk, "user": session.user_id, "epoch": 0}
        cursor.execute(WHO_WORKS, claimed)
        rows = cursor.fetchall()
        cursor.execute(WHO_WORKS, {**claimed, "user": uuid4()})
        assert cursor.fetchall() == []
    if not works:
        assert rows == []
        return
    assert caller is not None
    assert rows == [
        (
            caller.client_id,
            caller.plan_id,
            caller.monthly_input_tokens,
            caller.monthly_output_tokens,
            caller.daily_tokens,
        )
    ]
