"""The explanation of a person's calls: it runs the rules that refuse them, and leaves nothing behind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import Session, User
from accounts.people.access import disable
from accounts.sessions.revocation import end_session, revoke_all
from config.platform.periods import Period
from licensing.callers import load_caller
from licensing.licences import set_operator_status
from licensing.models import Licence, Plan, Standing
from llmproxy.calls.explanation import explain
from llmproxy.catalogue import readiness
from llmproxy.dialects.protocol import RouteKey
from llmproxy.keys.personal_keys import end_key, make_key
from llmproxy.models import LanguageModel, PersonalKey, Provider, Route
from llmproxy.requests.chat import parse
from tests.conftest import Browser
from tests.llmproxy.calling import admit
from usage import refusal_log
from usage.models import Budget, KeyMonth, MonthlyUsage, Refusal
from usage.stops import stop_model_calls

pytestmark = pytest.mark.django_db
MODEL = "scholar"
ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}


@dataclass
class Scene:
    """A person who can call a model at two providers, and what a test changes of it."""

    user: User
    plan: Plan
    model: LanguageModel
    by: Actor
    now: datetime
    api: APIClient
    key: PersonalKey | None = None

    @property
    def given(self) -> dict[str, Any]:
        return {"reason": "x", "by": self.by, "now": self.now}

    def use(self, **totals: int) -> None:
        """Gives the person this month's totals."""
        period = Period.of(self.now)
        MonthlyUsage.objects.create(user=self.user, period=period.month, day=period.day, **totals)

    def set_plan(self, **numbers: Any) -> None:
        Plan.objects.filter(pk=self.plan.pk).update(**numbers)

    def use_key(self, cap: int | None = None) -> None:
        """Lets the person call by a key of theirs."""
        session = Session.objects.get(user=self.user).pk
        caller = load_caller(user_id=self.user.pk, session_id=session)
        assert caller is not None
        self.set_plan(allows_keys=True)
        made = make_key(
            caller=caller,
            name="Editor",
            days=30,
            monthly_output_tokens=cap,
            by=self.by,
            now=self.now,
        )
        self.key = made.row
        self.api.credentials(HTTP_AUTHORIZATION=f"Bearer {made.text}")


@pytest.fixture
def scene(
    signed_in: APIClient, user: User, plan: Plan, by: Actor, now: datetime
) -> Iterator[Scene]:
    model = LanguageModel.objects.create(name=MODEL, provider_name=MODEL)
    for order, name in enumerate(("first", "second")):
        provider = Provider.objects.create(
            name=name, dialect="openai", base_url="http://127.0.0.1:9/v1"
        )
        Route.objects.create(model=model, provider=provider, provider_name=MODEL, order=order)
    _forget_routes()
    yield Scene(user, plan, model, by, now, signed_in)
    _forget_routes()
    refusal_log._waiting.clear()


def _forget_routes() -> None:
    """Forgets the routes that this process noted, here or in another test."""
    noted = readiness._seen, readiness._failures, readiness._failing_since, readiness._tries
    for each in noted:
        each.clear()


def end_sessions(scene: Scene) -> None:
    end_session(session=Session.objects.get(), why=Session.Ended.REVOKED, **scene.given)


def suspend(scene: Scene) -> None:
    licence = Licence.objects.get()
    set_operator_status(licence_id=licence.pk, status=Standing.SUSPENDED, **scene.given)


def call_once(scene: Scene) -> None:
    scene.api.post("/v1/llm/complete", {}, format="json")


def leave_to_another_plan(scene: Scene) -> None:
    scene.model.plans.add(Plan.objects.create(name="Another"))


def cool(scene: Scene) -> None:
    for name in ("first", "second"):
        readiness.note_failure(RouteKey(name, MODEL), wait=60, now=scene.now)


def spend_provider(scene: Scene) -> None:
    Provider.objects.filter(name__in=("first", "second")).update(calls_per_minute=1)
    scene.model.save()
    minute = int(scene.now.timestamp()) // 60
    for at in (minute, minute + 1):
        for name in ("first", "second"):
            cache.set(f"llm:calls:{at}:{name}", 1, 300)


def spend_budget(scene: Scene) -> None:
    assert scene.user.client_id is not None
    month = Period.of(scene.now).month
    Budget.objects.create(client_id=scene.user.client_id, monthly=5, spent=5, period=month)


def end_own_key(scene: Scene) -> None:
    scene.use_key()
    assert scene.key is not None
    end_key(key=scene.key, by=scene.by, now=scene.now)


def forbid_keys(scene: Scene) -> None:
    scene.use_key()
    scene.set_plan(allows_keys=False)


def spend_key(scene: Scene) -> None:
    scene.use_key(cap=100)
    assert scene.key is not None
    month = Period.of(scene.now).month
    KeyMonth.objects.create(key_id=scene.key.pk, period=month, output_used=95, output_cap=100)


Change = Callable[[Scene], object]
REFUSALS: dict[str, tuple[str, str, Change]] = {
    "disabled": (
        "account", "access_revoked", lambda scene: disable(user_id=scene.user.pk, **scene.given)
    ),
    "session ended": ("session", "access_revoked", end_sessions),
    "session expired": (
        "session",
        "access_revoked",
        lambda scene: Session.objects.update(expires_at=scene.now - timedelta(seconds=1)),
    ),
    "revoked": (
        "session", "access_revoked", lambda scene: revoke_all(user_id=scene.user.pk, **scene.given)
    ),
    "no client": ("client", "access_revoked", lambda scene: User.objects.update(client=None)),
    "no licence": ("client", "access_revoked", lambda scene: Licence.objects.all().delete()),
    "key ended": ("key", "access_revoked", end_own_key),
    "keys not allowed": ("key", "not_entitled", forbid_keys),
    "suspended": ("licence", "licence_suspended", suspend),
    "rate limit": ("rate", "rate_limited", call_once),
    "unknown": ("model", "not_found", lambda scene: scene.model.delete()),
    "switched off": (
        "model", "not_found", lambda scene: LanguageModel.objects.update(is_on=False)
    ),
    "another plan's": ("plan", "not_entitled", leave_to_another_plan),
    "providers off": (
        "route", "provider_unavailable", lambda scene: Provider.objects.update(is_on=False)
    ),
    "cooling": ("provider", "provider_unavailable", cool),
    "provider's limit": ("provider", "provider_unavailable", spend_provider),
    "stopped": (
        "stop",
        "model_calls_stopped",
        lambda scene: stop_model_calls(user_id=scene.user.pk, ends_at=None, **scene.given),
    ),
    "budget": ("budget", "budget_exceeded", spend_budget),
    "input": ("caps", "monthly_cap_exceeded", lambda scene: scene.use(input_used=500_000)),
    "output": ("caps", "monthly_cap_exceeded", lambda scene: scene.use(output_used=99_990)),
    "key's cap": ("caps", "monthly_cap_exceeded", spend_key),
    "day": ("day", "daily_limit_reached", lambda scene: scene.use(day_used=99_995)),
    "held": ("running", "cap_reserved", lambda scene: scene.use(input_reserved=500_000)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_the_explanation_fails_where_a_call_is_refused(scene: Scene, name: str) -> None:
    rule, code, change = REFUSALS[name]
    limit = {"llm.user": "1/d"} if name == "rate limit" else {}
    with override_settings(RATE_LIMITS=limit):
        change(scene)
        found = explain(user=_again(scene), now=scene.now, model=MODEL, key=scene.key)
        answer = scene.api.post("/v1/llm/complete", ASK, format="json")
    assert found.failing is not None
    assert found.failing.problem is not None
    assert (found.failing.rule, found.failing.problem.code) == (rule, code)
    assert (answer.status_code, answer.json()["code"]) == (found.failing.problem.status, code)
    refusal_log.flush()
    assert Refusal.objects.filter(user=scene.user, code=code, status=answer.status_code).exists()


def test_a_call_that_no_rule_refuses_is_admitted(scene: Scene) -> None:
    found = explain(user=scene.user, now=scene.now, model=MODEL)
    assert found.failing is None
    rules = [each.rule for each in found.checks]
    order = "account session client key licence rate model plan route spending provider stop budget caps day"
    assert rules == [*order.split(), "running"]
    caller = load_caller(user_id=scene.user.pk, session_id=Session.objects.get().pk)
    assert caller is not None
    admit(caller=caller, request=parse(ASK, stream=False), request_id="x", now=scene.now)


@pytest.mark.parametrize("name", ["input", "output", "day"])
def test_no_running_call_is_blamed_for_what_is_spent(scene: Scene, name: str) -> None:
    rule, _, change = REFUSALS[name]
    change(scene)
    found = explain(user=_again(scene), now=scene.now, model=MODEL)
    assert [each.rule for each in found.checks if each.problem] == [rule]


def test_a_share_that_is_spent_hides_no_other_that_is_held(scene: Scene) -> None:
    scene.use(output_used=99_990, input_reserved=500_000)
    found = explain(user=_again(scene), now=scene.now, model=MODEL)
    assert [each.rule for each in found.checks if each.problem] == ["caps", "running"]


def test_rules_after_a_failing_one_are_looked_at_too(scene: Scene) -> None:
    suspend(scene)
    stop_model_calls(user_id=scene.user.pk, ends_at=None, **scene.given)
    found = explain(user=_again(scene), now=scene.now, model=MODEL)
    assert [each.rule for each in found.checks if each.problem] == ["licence", "stop"]
    assert found.failing is not None
    assert found.failing.rule == "licence"


def test_a_person_who_never_signed_in_is_explained(scene: Scene) -> None:
    new = User.objects.create_user("new@acme.test", client=scene.user.client)
    found = explain(user=new, now=scene.now, model=MODEL)
    assert [each.rule for each in found.checks if each.problem] == ["session"]


@pytest.mark.parametrize("name", ["", *REFUSALS])
def test_the_explanation_changes_nothing(scene: Scene, name: str) -> None:
    if name:
        REFUSALS[name][2](scene)
    user = _again(scene)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        before = explain(user=user, now=scene.now, model=MODEL, key=scene.key)
        for _ in range(3):
            after = explain(user=user, now=scene.now, model=MODEL, key=scene.key)
    assert {each["sql"].split()[0] for each in queries.captured_queries} == {"SELECT"}
    failing = [found.failing and found.failing.rule for found in (before, after)]
    assert failing[0] == failing[1]
    # Neither the person's limit nor a provider's has been counted.
    rates = [
        check.read for found in (before, after) for check in found.checks if check.rule == "rate"
    ]
    assert all(rate is None or rate.remaining == rates[0].remaining for rate in rates)
    assert cache.get(f"llm:calls:{int(scene.now.timestamp()) // 60}:first") in {None, 1}
    assert not readiness._tries


def test_a_dry_run_does_not_try_a_route_that_has_failed(scene: Scene) -> None:
    for _ in range(3):
        readiness.note_failure(RouteKey("first", MODEL), wait=None, now=scene.now)
    later = scene.now + timedelta(seconds=31)
    for _ in range(2):
        assert explain(user=scene.user, now=later, model=MODEL).failing is None
        assert cache.get(readiness._key("try", RouteKey("first", MODEL))) is None


def _again(scene: Scene) -> User:
    return User.objects.get(pk=scene.user.pk)


@pytest.mark.parametrize("name", REFUSALS)
def test_the_page_says_the_answer_and_marks_the_rule(
    scene: Scene, console: Browser, name: str
) -> None:
    _, code, change = REFUSALS[name]
    with override_settings(RATE_LIMITS={"llm.user": "1/d"} if name == "rate limit" else {}):
        change(scene)
        key = scene.key.pk if scene.key else ""
        page = reverse("admin:accounts_user_explain", args=[scene.user.pk])
        answer = console.get(f"{page}?model={MODEL}&key={key}")
    if name in {"no client", "key ended"}:
        # There is nobody to explain, or no key to choose.
        return
    text = " ".join(answer.content.decode().split())
    assert f" {code}</code>" in text
    assert text.count('<li class="fails">') == 1
