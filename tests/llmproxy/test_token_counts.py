"""Counts of a prompt's tokens: for whom a provider is asked, and which."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from django.core.cache import cache
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import Session, User
from accounts.sessions.sign_in import TokenPair
from config.platform.periods import Period
from config.platform.problems.problem import Problem
from licensing.callers import Caller, CallerKey, load_caller
from llmproxy.calls.token_counts import count_tokens
from llmproxy.catalogue import readiness
from llmproxy.dialects.protocol import RouteKey
from llmproxy.models import LanguageModel, Provider, Route
from llmproxy.requests.messages import parse_count
from tests.llmproxy.test_cooling import forget
from tests.standins.anthropic_server import COUNTED, MessagesServer, message, messages_server, text
from usage.models import Budget, KeyMonth, MonthlyUsage
from usage.stops import stop_model_calls

pytestmark = pytest.mark.django_db
PROMPT: Any = {"model": "house", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    forget()
    cache.clear()


@pytest.fixture
def caller(pair: TokenPair, user: User) -> Caller:
    LanguageModel.objects.create(name="house", provider_name="-")
    caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
    assert caller is not None
    return caller


@pytest.fixture
def provider() -> Iterator[MessagesServer]:
    with messages_server(message(text("Hello")), api_key="sk-theirs") as server:
        yield server


def add_route(name: str, base_url: str, **columns: Any) -> Provider:
    columns = {"dialect": "anthropic", **columns}
    row = Provider(name=name, base_url=base_url, **columns)
    if row.api_key is None:
        row.seal("api_key", b"sk-theirs")
    row.save()
    model, order = LanguageModel.objects.get(), Route.objects.count()
    Route.objects.create(model=model, provider=row, provider_name="m", order=order)
    return row


def counted(caller: Caller, now: datetime) -> int:
    return count_tokens(caller=caller, request=parse_count(PROMPT, headers={}), now=now)


def test_no_prompt_of_somebody_who_may_not_call_goes_to_a_provider(
    caller: Caller, provider: MessagesServer, by: Actor, now: datetime
) -> None:
    add_route("first", provider.base_url)
    assert counted(caller, now) == COUNTED
    provider.bodies.clear()
    Budget.objects.create(
        client_id=caller.client_id, monthly=1, spent=1, period=Period.of(now).month
    )
    with pytest.raises(Problem) as refused:
        counted(caller, now)
    assert refused.value.code == "budget_exceeded"
    stop_model_calls(user_id=caller.user_id, reason="Enough.", ends_at=None, by=by, now=now)
    with pytest.raises(Problem) as refused:
        counted(caller, now)
    assert refused.value.code == "model_calls_stopped"
    assert provider.bodies == []


@pytest.mark.parametrize(
    ("spent", "code"),
    [
        ({"input_used": 500_000}, "monthly_cap_exceeded"),
        ({"output_used": 100_000}, "monthly_cap_exceeded"),
        ({"day_used": 100_000}, "daily_limit_reached"),
    ],
)
def test_no_prompt_goes_to_a_provider_past_a_spent_cap(
    spent: dict[str, int], code: str, caller: Caller, provider: MessagesServer, now: datetime
) -> None:
    add_route("first", provider.base_url)
    period = Period.of(now)
    MonthlyUsage.objects.create(
        user_id=caller.user_id, period=period.month, day=period.day, **spent
    )
    with pytest.raises(Problem) as refused:
        counted(caller, now)
    assert refused.value.code == code
    assert refused.value.headers["x-should-retry"] == "false"
    assert provider.bodies == []


def test_no_prompt_goes_to_a_provider_past_the_spent_cap_of_a_key(
    caller: Caller, provider: MessagesServer, now: datetime
) -> None:
    add_route("first", provider.base_url)
    key = CallerKey(
        id=uuid4(), epoch=0, monthly_output_tokens=100, last_used_at=None, is_allowed=True
    )
    month = {"key_id": key.id, "period": Period.of(now).month, "output_cap": 100}
    KeyMonth.objects.create(output_used=60, output_reserved=40, **month)
    by_key = replace(caller, key=key)
    assert counted(by_key, now) == COUNTED
    KeyMonth.objects.update(output_used=100, output_reserved=0)
    with pytest.raises(Problem) as refused:
        counted(by_key, now)
    assert refused.value.code == "monthly_cap_exceeded"
    assert len(provider.bodies) == 1


def test_a_prompt_too_long_for_what_is_left_is_refused_uncounted(
    caller: Caller, provider: MessagesServer, now: datetime
) -> None:
    add_route("first", provider.base_url)
    long = {**PROMPT, "messages": [{"role": "user", "content": "a" * 128 * 100_001}]}
    request = parse_count(long, headers={})
    with pytest.raises(Problem) as refused:
        count_tokens(caller=caller, request=request, now=now, size=128 * 100_001)
    assert refused.value.code == "daily_limit_reached"
    assert provider.bodies == []


def test_a_large_prompt_counts_several_times_towards_the_limit_of_counts(
    caller: Caller, provider: MessagesServer, signed_in: APIClient, settings: Any
) -> None:
    add_route("first", provider.base_url)
    settings.RATE_LIMITS = {"counts.user": "4/h"}
    large = {**PROMPT, "messages": [{"role": "user", "content": "a " * 300 * 1024}]}

    def ask(body: Any) -> int:
        return signed_in.post("/v1/llm/messages/count_tokens", body, format="json").status_code

    # Three of four; then the rest is too few for another, and spent by it.
    assert [ask(large), ask(large), ask(PROMPT)] == [200, 429, 429]
    assert len(provider.bodies) == 1


def test_a_prompt_with_files_counts_eight_times_towards_the_limit_of_counts(
    caller: Caller, provider: MessagesServer, signed_in: APIClient, settings: Any
) -> None:
    add_route("first", provider.base_url)
    settings.RATE_LIMITS = {"counts.user": "9/h"}
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"}
    document = {"type": "document", "source": source}
    with_files = {**PROMPT, "messages": [{"role": "user", "content": [document] * 2}]}

    def ask(body: Any) -> int:
        return signed_in.post("/v1/llm/messages/count_tokens", body, format="json").status_code

    assert [ask(with_files), ask(PROMPT), ask(PROMPT)] == [200, 200, 429]
    assert len(provider.bodies) == 2


def test_running_calls_that_hold_all_tokens_refuse_no_count(
    caller: Caller, provider: MessagesServer, now: datetime
) -> None:
    add_route("first", provider.base_url)
    period = Period.of(now)
    MonthlyUsage.objects.create(
        user_id=caller.user_id, period=period.month, day=period.day, output_reserved=100_000
    )
    assert counted(caller, now) == COUNTED


def test_a_prompt_is_estimated_without_a_readable_key(
    caller: Caller, provider: MessagesServer, now: datetime
) -> None:
    add_route("first", provider.base_url, api_key=b"unreadable")
    assert 0 < counted(caller, now) < COUNTED
    assert provider.bodies == []


def test_a_prompt_is_estimated_beyond_a_providers_calls_a_minute(
    caller: Caller, provider: MessagesServer, now: datetime
) -> None:
    add_route("first", provider.base_url, calls_per_minute=1)
    assert counted(caller, now) == COUNTED
    assert 0 < counted(caller, now) < COUNTED
    assert len(provider.bodies) == 1


def test_a_route_that_cools_down_is_not_asked_and_leaves_its_try_to_a_call(
    caller: Caller, provider: MessagesServer, now: datetime
) -> None:
    with messages_server(message(text("Hello")), api_key="sk-theirs") as failing:
        add_route("first", failing.base_url)
        add_route("second", provider.base_url)
        first = RouteKey("first", "m")
        for _ in range(3):
            readiness.note_failure(first, wait=None, now=now)
        assert counted(caller, now) == COUNTED
        assert (len(failing.bodies), len(provider.bodies)) == (0, 1)
        later = now.replace(year=now.year + 1)
        assert counted(caller, later) == COUNTED
        assert len(failing.bodies) == 1
        assert readiness.cooling(first, now=later) is None
