"""Spending limits at admission: who is stopped, on which surface, and what goes on.

Rows name public reports of other proxies that limit spending.
"""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import Session, User
from config.platform.money import DOLLAR
from config.platform.periods import Period
from config.platform.problems.problem import InvalidRequest
from licensing.callers import Caller, load_caller
from llmproxy.calls.explanation import explain
from llmproxy.catalogue.providers import ProviderTerms, change_provider
from llmproxy.models import LanguageModel, Provider, Route
from llmproxy.requests.chat import parse
from tests.llmproxy.calling import admit
from tests.llmproxy.test_explanation import ASK, MODEL, Scene, scene
from tests.usage.test_budgets import ask, end
from usage import refusal_log
from usage.models import MonthlyUsage, Refusal, SpendLimit, UsageRecord
from usage.spending.daily import count_days
from usage.spending.spend_limits import SpendStopped, let_calls_pass, set_spend_limit, watch

__all__ = ["scene"]
pytestmark = pytest.mark.django_db
CHAT = {"model": MODEL, "messages": ASK["messages"], "max_tokens": 50}
EMBEDDER, CLAUDE = "embedder", "claude"
SURFACES: dict[str, tuple[str, dict[str, Any]]] = {
    "complete": ("/v1/llm/complete", CHAT),
    "stream": ("/v1/llm/stream", CHAT),
    "chat": ("/v1/llm/chat/completions", CHAT),
    "chat stream": ("/v1/llm/chat/completions", {**CHAT, "stream": True}),
    "responses": ("/v1/llm/responses", {"model": MODEL, "input": "Hello"}),
    "embeddings": ("/v1/llm/embeddings", {"model": EMBEDDER, "input": "Hello"}),
    "messages": ("/v1/llm/messages", {**CHAT, "model": CLAUDE}),
    "messages below v1": ("/v1/llm/v1/messages", {**CHAT, "model": CLAUDE}),
}


@pytest.fixture
def models(scene: Scene) -> Scene:
    """Beside the scene's model one of embeddings and one of messages, at its first provider's and another."""
    provider = Provider.objects.create(
        name="third", dialect="anthropic", base_url="http://127.0.0.1:9"
    )
    first = Provider.objects.get(name="first")
    for name, at in ((EMBEDDER, first), (CLAUDE, provider)):
        model = LanguageModel.objects.create(name=name, provider_name=name)
        Route.objects.create(model=model, provider=at, provider_name=name)
    return scene


def stop(scene: Scene, provider: str = "", *, span: str = "daily") -> SpendLimit:
    """Reaches a limit of a dollar."""
    amounts: dict[str, int | None] = {"daily": None, "monthly": None, span: DOLLAR}
    limit = set_spend_limit(provider=provider, **amounts, **scene.given)
    assert limit is not None
    call = end(scene.user, ask(scene.user, now=scene.now), scene.now, output=1_000)
    UsageRecord.objects.filter(pk=call.pk).update(provider=provider or "first")
    count_days(now=scene.now)
    watch(now=scene.now)
    return limit


def caller(user: User) -> Caller:
    found = load_caller(user_id=user.pk, session_id=Session.objects.get(user=user).pk)
    assert found is not None
    return found


def asked(scene: Scene, model: str = MODEL) -> list[str]:
    """The providers that an admitted call may use."""
    request = parse({**CHAT, "model": model}, stream=False)
    call = admit(caller=caller(scene.user), request=request, request_id="x", now=scene.now)
    return [each.provider for each in call.admission.targets]


@pytest.mark.parametrize("span", ["daily", "monthly"])
@pytest.mark.parametrize("surface", SURFACES)
def test_every_surface_refuses_in_its_own_shape(models: Scene, surface: str, span: str) -> None:
    stop(models, span=span)
    address, body = SURFACES[surface]
    before = list(MonthlyUsage.objects.values())
    answer = models.api.post(address, body, format="json")
    assert answer.status_code == 503
    assert answer["x-should-retry"] == "false"
    ends = Period.of(models.now)
    end = ends.next_day if span == "daily" else ends.next_month
    left = (end - models.now).total_seconds()
    assert left - 120 < int(answer["Retry-After"]) <= left + 1
    said = answer.json()
    if surface.startswith("messages"):
        assert said["type"] == "error"
        assert said["error"]["details"]["error_code"] == "spend_stopped"
    else:
        assert (said["code"], said["error"]["code"]) == ("spend_stopped", "spend_stopped")
        assert said["retry_after_iso"] == end.isoformat().replace("+00:00", "Z")
    assert list(MonthlyUsage.objects.values()) == before
    assert not UsageRecord.objects.open().exists()


def test_a_personal_key_is_stopped_too(models: Scene) -> None:
    stop(models)
    models.use_key()
    answer = models.api.post("/v1/llm/chat/completions", CHAT, format="json")
    assert answer.json()["code"] == "spend_stopped"


def test_calls_go_on_to_another_provider(scene: Scene) -> None:
    assert asked(scene) == ["first", "second"]
    stop(scene, "first")
    assert asked(scene) == ["second"]
    stop(scene, "second")
    with pytest.raises(SpendStopped):
        asked(scene)


@pytest.mark.parametrize(
    ("stopped", "providers"), [("first", None), ("second", ["first"]), ("elsewhere", ["first"])]
)
def test_a_request_that_only_a_stopped_provider_can_take_is_stopped(
    scene: Scene, stopped: str, providers: list[str] | None
) -> None:
    """It is no fault of the request, and is held to the route that it would be held to on another day."""
    Provider.objects.filter(name="second").update(
        dialect="anthropic", base_url="http://127.0.0.1:9"
    )
    request = parse({**CHAT, "seed": 7, "logit_bias": {"1": 5}}, stream=False)
    stop(scene, stopped)

    def asked() -> list[str]:
        call = admit(caller=caller(scene.user), request=request, request_id="x", now=scene.now)
        return [each.provider for each in call.admission.targets]

    if providers is None:
        with pytest.raises(SpendStopped):
            asked()
    else:
        assert asked() == providers


def test_a_prompt_is_not_counted_for_whom_no_call_begins(models: Scene) -> None:
    body = {"model": CLAUDE, "messages": ASK["messages"]}
    asked = partial(models.api.post, "/v1/llm/messages/count_tokens", body, format="json")
    assert asked().status_code == 200
    stop(models, "elsewhere")
    assert asked().status_code == 200
    stop(models)
    answer = asked()
    assert (answer.status_code, answer["x-should-retry"]) == (503, "false")


def test_a_provider_keeps_the_name_by_which_its_limit_counts(scene: Scene) -> None:
    provider = Provider.objects.get(name="first")
    set_spend_limit(provider="first", daily=DOLLAR, monthly=None, **scene.given)
    given = {"provider_id": provider.pk, "key": "", **scene.given}
    terms = ProviderTerms(name="first", dialect="openai", base_url="http://127.0.0.1:10/v1")
    change_provider(terms=terms, **given)
    with pytest.raises(InvalidRequest) as refused:
        change_provider(terms=replace(terms, name="another"), **given)
    assert [each.pointer for each in refused.value.errors] == ["/name"]
    set_spend_limit(provider="first", daily=None, monthly=None, **scene.given)
    assert change_provider(terms=replace(terms, name="another"), **given).name == "another"


def test_a_limit_at_another_provider_changes_nothing(scene: Scene) -> None:
    stop(scene, "elsewhere")
    assert asked(scene) == ["first", "second"]


FREE = {"input_price": 0, "output_price": 0}
PAID = {"input_price": 0, "output_price": 1}
UNPRICED = {"input_price": None, "output_price": None}


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        # BerriAI/litellm#10973
        (FREE, FREE, ["first", "second"]),
        # BerriAI/litellm#41344
        (FREE, PAID, ["first"]),
        (PAID, FREE, ["second"]),
        (FREE, UNPRICED, ["first"]),
        ({**FREE, "cache_write_price": 1}, PAID, None),
        (UNPRICED, UNPRICED, None),
    ],
)
def test_models_that_cost_nothing_go_on(
    scene: Scene, first: dict[str, Any], second: dict[str, Any], left: list[str] | None
) -> None:
    for name, prices in (("first", first), ("second", second)):
        Route.objects.filter(provider__name=name).update(**prices)
    stop(scene)
    if left is None:
        with pytest.raises(SpendStopped):
            asked(scene)
    else:
        assert asked(scene) == left


def test_a_process_learns_of_each_change_with_the_catalogue(scene: Scene) -> None:
    """BerriAI/litellm#39729, #38686: other processes go on refusing what was raised."""
    limit = stop(scene)
    with pytest.raises(SpendStopped):
        asked(scene)
    let_calls_pass(limit_id=limit.pk, **scene.given)
    assert asked(scene) == ["first", "second"]
    SpendLimit.objects.update(passes_on=None)
    with pytest.raises(SpendStopped):
        asked(scene)
    set_spend_limit(provider="", daily=2 * DOLLAR, monthly=None, **scene.given)
    assert asked(scene) == ["first", "second"]


def test_a_limit_costs_no_query_of_a_call(scene: Scene) -> None:
    def queries() -> int:
        asked(scene)
        with CaptureQueriesContext(connection) as found:
            asked(scene)
        assert not [each for each in found if "usage_spendlimit" in each["sql"]]
        return len(found)

    before = queries()
    stop(scene, "first")
    assert queries() == before


def test_counting_makes_no_process_read_the_catalogue_again(scene: Scene) -> None:
    stop(scene, "first")
    version = caller(scene.user).catalogue_version
    end(scene.user, ask(scene.user, now=scene.now), scene.now, output=500)
    count_days(now=scene.now)
    watch(now=scene.now)
    assert caller(scene.user).catalogue_version == version


@pytest.mark.parametrize(
    ("span", "days", "is_stopped"),
    [
        # BerriAI/litellm#31292: a day's limit is not one of thirty days.
        ("daily", 0, True),
        # BerriAI/litellm#5651, #24675: what was spent before does not count in the next period.
        ("daily", 1, False),
        ("monthly", 0, True),
        ("monthly", 32, False),
    ],
)
def test_a_new_period_begins_without_a_count(
    scene: Scene,
    span: str,
    days: int,
    is_stopped: bool,
) -> None:
    stop(scene, span=span)
    scene.now += timedelta(days=days)
    if is_stopped:
        with pytest.raises(SpendStopped):
            asked(scene)
    else:
        assert asked(scene) == ["first", "second"]


def test_the_explanation_and_the_refusals_say_it(scene: Scene) -> None:
    stop(scene)
    found = explain(user=scene.user, now=scene.now, model=MODEL)
    assert found.failing is not None
    assert (found.failing.rule, found.failing.read[0][0].provider) == ("spending", "")
    scene.api.post("/v1/llm/complete", ASK, format="json")
    refusal_log.flush()
    assert Refusal.objects.filter(user=scene.user, code="spend_stopped", status=503).exists()


def test_a_running_call_ends_as_ever(scene: Scene, by: Actor, signed_in: APIClient) -> None:
    running = ask(scene.user, now=scene.now)
    stop(scene)
    record = end(scene.user, running, scene.now, output=7)
    assert (record.state, record.output_tokens) == (UsageRecord.State.SETTLED, 7)
