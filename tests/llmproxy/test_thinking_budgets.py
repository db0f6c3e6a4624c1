"""Budgets for thinking: within the output limit that a call gets, or refused."""

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from accounts.models import Session, User
from accounts.sessions.sign_in import TokenPair
from config.platform.problems.problem import InvalidRequest
from licensing.callers import Caller, load_caller
from llmproxy.models import LanguageModel, Provider, Route
from llmproxy.requests import chat, messages
from llmproxy.requests.thinking_budgets import check, least_output, lowered
from tests.llmproxy.calling import admit
from usage.models import MonthlyUsage, UsageRecord
from usage.refusals import MonthlyCapExceeded

HELLO = [{"role": "user", "content": "hello"}]
PLACES: list[dict[str, Any]] = [
    {"thinking": {"type": "enabled", "budget_tokens": 2_000}},
    {"reasoning": {"max_tokens": 2_000, "exclude": True}},
    {"thinking_budget": 2_000},
    {"thinking": {"type": "enabled", "budget_tokens": 2_000.0}},
    {"thinking_token_budget": 2_000},
    # Some servers read texts as numbers.
    {"thinking_token_budget": "2000"},
    {"thinking_budget": " +2_000.0"},
    {"chat_template_kwargs": {"enable_thinking": True, "thinking_budget": 2_000}},
    {"extra_body": {"google": {"thinking_config": {"thinking_budget": 2_000}}}},
]


@pytest.mark.parametrize("members", PLACES)
def test_a_budget_is_found_wherever_callers_write_it(members: dict[str, Any]) -> None:
    assert least_output(members) == 1_025
    check(members, wanted=2_000, limit=1_025)
    with pytest.raises(InvalidRequest):
        check(members, wanted=1_999, limit=1_999)
    with pytest.raises(InvalidRequest):
        check(members, wanted=2_000, limit=1_024)
    assert "1499" in json.dumps(lowered({**members, "top_p": 1}, limit=1_500, wanted=4_000))
    assert lowered(members, limit=2_000, wanted=2_000) == members


@pytest.mark.parametrize("budget", ["1e400", "inf", "9" * 5_000, 10**400])
def test_a_budget_without_end_is_above_any_limit(budget: Any) -> None:
    with pytest.raises(InvalidRequest):
        check({"thinking_budget": budget}, wanted=100_000, limit=100_000)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"thinking": "high"},
        {"thinking": {"type": "adaptive"}},
        {"reasoning": {"effort": "high"}},
        {"thinking_budget": -1},
        {"thinking_budget": "-1"},
        {"thinking_budget": "nan"},
        {"thinking_budget": "auto"},
    ],
)
def test_other_thinking_is_no_budget(members: dict[str, Any]) -> None:
    assert least_output(members) == 0
    check(members, wanted=16, limit=16)
    assert lowered(members, limit=16, wanted=99) == members


@pytest.mark.django_db
class TestAdmission:
    @pytest.fixture
    def caller(self, pair: TokenPair, user: User) -> Caller:
        model = LanguageModel.objects.create(name="thinker", provider_name="claude-3-7-sonnet")
        provider = Provider.objects.create(
            name="theirs", dialect="anthropic", base_url="https://theirs.test", members="all"
        )
        Route.objects.create(model=model, provider=provider, provider_name="claude-3-7-sonnet")
        caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
        assert caller is not None
        return replace(caller, catalogue_version=None)

    def asked(self, surface: str) -> Any:
        thinking = {"type": "enabled", "budget_tokens": 2_000}
        body = {"model": "thinker", "messages": HELLO, "max_tokens": 4_000, "thinking": thinking}
        if surface == "chat":
            return chat.parse(body, stream=False)
        return messages.parse(body, headers={})

    @pytest.mark.parametrize("surface", ["chat", "messages"])
    def test_a_limit_that_a_cap_lowers_lowers_the_budget(
        self, caller: Caller, now: datetime, surface: str
    ) -> None:
        self.left(caller, 1_500, now)
        call = admit(caller=caller, request=self.asked(surface), request_id="", now=now)
        admission = call.admission
        assert admission.reservation.output_limit == 1_500
        target = admission.targets[0]._replace(key=lambda: "")
        sent = target.codec(admission.request.surface).outgoing(
            admission.request, target=target, output_limit=1_500
        )
        body = json.loads(sent.body)
        assert (body["max_tokens"], body["thinking"]["budget_tokens"]) == (1_500, 1_499)

    @pytest.mark.parametrize("surface", ["chat", "messages"])
    def test_a_cap_that_leaves_less_than_the_least_budget_refuses(
        self, caller: Caller, now: datetime, surface: str
    ) -> None:
        self.left(caller, 1_024, now)
        with pytest.raises(MonthlyCapExceeded) as refused:
            admit(caller=caller, request=self.asked(surface), request_id="", now=now)
        assert "1,025 tokens" in refused.value.detail
        assert not UsageRecord.objects.filter(state="open").exists()

    def left(self, caller: Caller, tokens: int, now: datetime) -> None:
        """Uses all but so many tokens of the month's output."""
        plain = chat.parse({"model": "thinker", "messages": HELLO, "max_tokens": 16}, stream=False)
        admit(caller=caller, request=plain, request_id="", now=now).settle(UsageRecord.End.DONE)
        MonthlyUsage.objects.update(output_used=100_000 - tokens)
