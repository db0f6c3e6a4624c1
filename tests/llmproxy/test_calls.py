"""Calls: who may, what is reserved, and what each end costs."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from accounts.audit import Actor
from accounts.models import Session, User
from accounts.sessions.sign_in import TokenPair
from config.platform.periods import Period
from config.platform.problems.problem import NotFound, Problem
from config.platform.problems.rendering import openai_error
from licensing.callers import Caller, load_caller
from licensing.models import Licence, Plan
from llmproxy.calls import watch
from llmproxy.calls.call import Call, End
from llmproxy.calls.meter import State
from llmproxy.calls.stop import StopReason
from llmproxy.catalogue.choosing import NotEntitled, choose, offered
from llmproxy.dialects.protocol import PromptUsage, TokenUsage
from llmproxy.models import LanguageModel, Provider, Route, tokenizer_of
from llmproxy.prompts.estimates import least_tokens
from llmproxy.prompts.images import OTHERS_LARGEST
from llmproxy.requests.call_request import Surface
from llmproxy.requests.chat import parse
from tests.llmproxy.calling import admit, asking
from usage import alerts
from usage.costs import Prices
from usage.models import Alert, Budget, MonthlyUsage, Stop, UsageRecord
from usage.stops import stop_model_calls

pytestmark = pytest.mark.django_db


@pytest.fixture
def caller(pair: TokenPair, user: User) -> Caller:
    caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
    assert caller is not None
    # Tests change the catalogue after this.
    return replace(caller, catalogue_version=None)


@pytest.fixture
def call(caller: Caller, now: datetime) -> Call:
    chat = parse(
        {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 100}, stream=True
    )
    return admit(caller=caller, request=chat, request_id="req-1", now=now)


def left(call: Call) -> tuple[str, str]:
    headers = call.remaining(now=timezone.now())
    return headers["X-Tokens-Remaining-Month"], headers["X-Tokens-Remaining-Day"]


def whole(call: Call) -> Call:
    """The same call for a whole answer."""
    admission = call.admission
    return Call(replace(admission, request=replace(admission.request, stream=False)))


class TestTokensLeft:
    def test_openais_headers_say_the_scarcer_of_day_and_month(
        self, call: Call, caller: Caller, now: datetime
    ) -> None:
        at = now.replace(hour=23, minute=59, second=30, microsecond=0)
        headers = call.remaining(now=at)
        assert headers["x-ratelimit-limit-tokens"] == "100000"
        assert headers["x-ratelimit-remaining-tokens"] == "100000"
        assert headers["x-ratelimit-reset-tokens"] == "30s"
        MonthlyUsage.objects.update(output_used=99_000)
        chat = parse({"messages": [{"role": "user", "content": "hello"}]}, stream=True)
        scarce = admit(caller=caller, request=chat, request_id="req-2", now=now).remaining(now=at)
        assert int(scarce["x-ratelimit-remaining-tokens"]) < 1_000
        ends = (Period.of(at).next_month - at).total_seconds()
        assert scarce["x-ratelimit-reset-tokens"] == f"{ends:.0f}s"

    @pytest.mark.parametrize(
        ("wanted", "told"), [(9_999, "4096"), (4_096, None), (100, None), (None, None)]
    )
    def test_an_output_limit_that_is_lower_than_asked_for_is_said(
        self, caller: Caller, now: datetime, wanted: int | None, told: str | None
    ) -> None:
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": wanted}
        call = admit(caller=caller, request=parse(body, stream=False), request_id="req-1", now=now)
        assert call.remaining(now=now).get("X-Output-Limit") == told

    @pytest.mark.parametrize("wanted", [None, 100])
    def test_an_output_limit_that_a_cap_lowers_is_said_also_where_none_was_asked_for(
        self, call: Call, caller: Caller, now: datetime, wanted: int | None
    ) -> None:
        call.settle(End.PROVIDER_FAILED)
        MonthlyUsage.objects.update(output_used=100_000 - 16)
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": wanted}
        low = admit(caller=caller, request=parse(body, stream=False), request_id="req-2", now=now)
        assert low.remaining(now=now)["X-Output-Limit"] == "16"

    def test_the_labels_of_the_caller_are_on_the_record(
        self, caller: Caller, now: datetime
    ) -> None:
        body = {
            "messages": [{"role": "user", "content": "hello"}],
            "user": "seat-7",
            "metadata": {"project": "moon"},
        }
        admit(caller=caller, request=parse(body, stream=False), request_id="req-1", now=now)
        labels = {"user": "seat-7", "metadata": {"project": "moon"}}
        assert UsageRecord.objects.get().labels == labels

    def test_remaining_tokens_are_those_before_the_call_until_the_settlement(
        self, call: Call
    ) -> None:
        assert left(call) == ("100000", "100000")

    def test_remaining_tokens_are_less_by_the_charge_after_the_settlement(self, call: Call) -> None:
        asking(call).report = TokenUsage(30, 20)
        call.settle(End.DONE)
        assert left(call) == ("99980", "99950")

    def test_a_call_that_another_has_settled_says_what_was_left_before_it(self, call: Call) -> None:
        UsageRecord.objects.update(
            state="settled", settled_at=record().opened_at, source="counted", end="crashed"
        )
        call.settle(End.DONE)
        assert left(call) == ("100000", "100000")

    def test_remaining_tokens_are_unlimited_without_caps(
        self, caller: Caller, now: datetime
    ) -> None:
        free = replace(
            caller, monthly_input_tokens=None, monthly_output_tokens=None, daily_tokens=None
        )
        call = admit(
            caller=free,
            request=parse({"messages": [{"role": "user", "content": "Hi"}]}, stream=False),
            request_id="",
            now=now,
        )
        assert left(call) == ("unlimited", "unlimited")
        call.settle(End.PROVIDER_FAILED)
        assert left(call) == ("unlimited", "unlimited")


def record() -> UsageRecord:
    return UsageRecord.objects.get()


class TestModels:
    def test_the_default_model_needs_no_row(self, caller: Caller, settings) -> None:
        model = choose(None, surface=Surface.CHAT, caller=caller)
        assert (model.name, model.output_limit) == (settings.LLM_DEFAULT_MODEL, 4096)
        assert [each.name for each in offered(caller=caller)] == [settings.LLM_DEFAULT_MODEL]

    def test_a_row_of_the_default_model_overrides_the_setting(
        self, caller: Caller, settings
    ) -> None:
        LanguageModel.objects.create(
            name=settings.LLM_DEFAULT_MODEL, provider_name="x", is_on=False
        )
        with pytest.raises(NotFound):
            choose(None, surface=Surface.CHAT, caller=caller)
        assert offered(caller=caller) == []

    @pytest.mark.parametrize("name", ["gpt-unheard-of", "stand-in-small\0", "\0"])
    def test_an_unknown_model_is_not_found(self, name: str, caller: Caller) -> None:
        with pytest.raises(NotFound) as refused:
            choose(name, surface=Surface.CHAT, caller=caller)
        assert openai_error(refused.value)["param"] == "model"

    def test_the_first_of_a_models_routes_is_asked_first(self, caller: Caller, plan: Plan) -> None:
        model = LanguageModel.objects.create(name="large", provider_name="large-2026")
        model.plans.add(plan, Plan.objects.create(name="Other"))
        for order, name in enumerate(("second", "first"), 1):
            provider = Provider.objects.create(name=name)
            Route.objects.create(
                model=model, provider=provider, provider_name=f"{name}-large", order=2 - order
            )
        found = choose("large", surface=Surface.CHAT, caller=caller)
        assert found.targets[0].model == "first-large"

    def test_a_model_of_another_plan_is_not_entitled(self, caller: Caller) -> None:
        model = LanguageModel.objects.create(name="grand", provider_name="g")
        model.plans.add(Plan.objects.create(name="Enterprise"))
        with pytest.raises(NotEntitled):
            choose("grand", surface=Surface.CHAT, caller=caller)
        assert "grand" not in [each.name for each in offered(caller=caller)]
        model.plans.add(Licence.objects.get().plan)
        assert choose("grand", surface=Surface.CHAT, caller=caller).targets[0].model == "g"

    def test_a_model_is_called_and_priced_as_its_first_route_says(self, caller: Caller) -> None:
        model = LanguageModel.objects.create(name="grand", provider_name="g")
        default, other = Provider.objects.get(), Provider.objects.create(name="other")
        assert choose("grand", surface=Surface.CHAT, caller=caller).targets[0].measure == (
            "factor",
            Decimal("1.35"),
        )
        Route.objects.create(
            model=model, provider=other, provider_name="o", order=2, token_factor=Decimal(2)
        )
        first = Route.objects.create(
            model=model,
            provider=default,
            provider_name="gpt-4",
            order=1,
            tokenizer="cl100k_base",
            input_price=3,
            output_price=4,
        )
        for plan in (Licence.objects.get().plan, Plan.objects.create(name="Enterprise")):
            model.plans.add(plan)
            chosen = choose("grand", surface=Surface.CHAT, caller=caller)
            first_target = chosen.targets[0]
            assert (first_target.model, first_target.prices) == ("gpt-4", Prices(3, None, 4))
            assert tuple(each.measure for each in chosen.targets) == (
                (first.tokenizer, first.token_factor),
                ("factor", Decimal(2)),
            )

    @pytest.mark.parametrize(
        ("name", "tokenizer"),
        [
            ("gpt-4o-mini", "o200k_base"), ("gpt-4.1", "o200k_base"), ("gpt-5.2-codex", "o200k_base"),
            ("o1", "o200k_base"), ("o4-mini", "o200k_base"), ("openai/gpt-oss-20b", "o200k_base"),
            ("chatgpt-4o-latest", "o200k_base"), ("gpt-4", "cl100k_base"), ("gpt-4-turbo", "cl100k_base"),
            ("gpt-3.5-turbo", "cl100k_base"), ("ft:gpt-3.5-turbo-0125:acme::9aBc", "cl100k_base"),
            ("ft:gpt-4o-mini-2024-07-18:acme::9aBc", "o200k_base"), ("openai/ft:gpt-4.1:acme", "o200k_base"),
            ("ft:llama-4", "factor"), ("claude-opus-4", "factor"), ("olmo", "factor"),
        ],
    )  # fmt: skip
    def test_openais_families_have_their_tokenizers(self, name: str, tokenizer: str) -> None:
        assert tokenizer_of(name) == tokenizer


class TestAdmission:
    def test_the_record_names_caller_and_model_and_holds_no_content(
        self, call: Call, caller: Caller
    ) -> None:
        row = record()
        assert (row.user_id, row.client_id, row.session_id) == (
            caller.user_id,
            caller.client_id,
            caller.session_id,
        )
        assert (row.provider, row.request_id, row.streamed) == ("default", "req-1", True)
        assert row.reserved_output == 100
        assert "hello" not in repr(row.__dict__)

    def test_a_callers_limit_is_lowered_to_the_models(self, caller: Caller, now: datetime) -> None:
        LanguageModel.objects.create(name="small", provider_name="s", output_limit=50)
        chat = parse(
            {"messages": [{"role": "user", "content": "x"}], "model": "small", "max_tokens": 900},
            stream=False,
        )
        admitted = admit(caller=caller, request=chat, request_id="", now=now)
        assert admitted.admission.reservation.output_limit == 50

    def admitted(self, caller: Caller, now: datetime, **members: object) -> Call:
        said = {"messages": [{"role": "user", "content": "x"}], **members}
        return admit(caller=caller, request=parse(said, stream=False), request_id="", now=now)

    def test_one_statement_admits_a_call_of_a_model_that_is_kept(
        self,
        call: Call,
        caller: Caller,
        now: datetime,
        settings,
        django_assert_num_queries: Callable[[int], AbstractContextManager[object]],
    ) -> None:
        assert caller.session_id is not None
        same = load_caller(user_id=caller.user_id, session_id=caller.session_id)
        assert same is not None
        self.admitted(same, now)
        with django_assert_num_queries(1):
            assert self.admitted(same, now).admission.model.name == settings.LLM_DEFAULT_MODEL
        LanguageModel.objects.create(name="small", provider_name="s", output_limit=50)
        admitted = self.admitted(caller, now, model="small")
        assert admitted.admission.model == choose("small", surface=Surface.CHAT, caller=caller)
        assert UsageRecord.objects.filter(model="small", reserved_output=50).exists()

    def test_a_model_that_may_not_be_chosen_is_not_admitted(
        self, call: Call, caller: Caller, now: datetime, settings
    ) -> None:
        with pytest.raises(NotFound):
            self.admitted(caller, now, model="gpt-unheard-of")
        default = LanguageModel.objects.create(
            name=settings.LLM_DEFAULT_MODEL, provider_name="x", is_on=False
        )
        with pytest.raises(NotFound):
            self.admitted(caller, now)
        default.is_on = True
        default.save()
        default.plans.add(Plan.objects.create(name="Enterprise"))
        with pytest.raises(NotEntitled):
            self.admitted(caller, now)
        assert record().pk == call.id
        default.plans.add(Licence.objects.get().plan)
        assert self.admitted(caller, now).admission.model.targets[0].model == "x"

    def refuse_large(self, caller: Caller, now: datetime, text: str) -> Problem:
        """The refusal of a large call; four queries read the catalogue, and another found the refusal."""
        chat = parse({"messages": [{"role": "user", "content": text}]}, stream=False)
        with (
            CaptureQueriesContext(connection) as queries,
            pytest.raises(Problem) as refused,
        ):
            admit(caller=caller, request=chat, request_id="", now=now, size=8_000_000)
        writes = [query for query in queries if "usage_alert" in query["sql"]]
        assert len(queries) - len(writes) == 5
        return refused.value

    def test_a_large_call_that_cannot_pass_is_refused_uncounted(
        self, caller: Caller, now: datetime, by: Actor
    ) -> None:
        words = "Words that are many. " * 100
        nothing_left = replace(caller, monthly_input_tokens=0)
        assert self.refuse_large(nothing_left, now, words).code == "monthly_cap_exceeded"
        # Less is left than the prompt can be.
        too_long = self.refuse_large(replace(caller, daily_tokens=9999), now, words * 1000)
        assert (too_long.code, too_long.members["requested"]) == ("daily_limit_reached", 16_422)
        Budget.objects.create(
            client_id=caller.client_id, monthly=1, spent=1, period=Period.of(now).month
        )
        assert self.refuse_large(caller, now, words).code == "budget_exceeded"
        stop_model_calls(user_id=caller.user_id, reason="Enough.", ends_at=None, by=by, now=now)
        assert self.refuse_large(caller, now, words).code == "model_calls_stopped"

    def test_a_large_call_that_may_pass_is_counted_and_admitted(
        self, caller: Caller, now: datetime
    ) -> None:
        chat = parse({"messages": [{"role": "user", "content": " " * 99_000}]}, stream=False)
        call = admit(caller=caller, request=chat, request_id="", now=now, size=99_100)
        assert 773 <= least_tokens(chat.members) <= call.admission.estimate.tokens

    @pytest.mark.parametrize(("tokens", "each"), [(None, OTHERS_LARGEST), (7, 7), (0, 0)])
    def test_images_cost_the_tokens_of_the_models_row(
        self, caller: Caller, now: datetime, settings: Settings, tokens: int | None, each: int
    ) -> None:
        LanguageModel.objects.create(name="eyes", provider_name="e", image_tokens=tokens)
        settings.LLM_FETCHES = "yes"
        image = {"type": "image_url", "image_url": {"url": "https://pictures.test/1"}}
        estimates = [
            self.admitted(
                caller, now, model="eyes", messages=[{"role": "user", "content": [image] * count}]
            ).admission.estimate.tokens
            for count in (1, 3)
        ]
        assert estimates[1] - estimates[0] == 2 * each


class TestEnds:
    """The ledger after every end; test_charge.py covers the charges."""

    def test_the_providers_report_is_charged(self, call: Call) -> None:
        asking(call).report = TokenUsage(input=9, output=8, cached_input=7, reasoning=6)
        call.settle(End.DONE)
        row = record()
        assert (row.input_tokens, row.output_tokens, row.cached_input_tokens) == (9, 8, 7)
        assert (row.reasoning_tokens, row.source, row.end) == (6, "provider", "done")

    def test_a_cached_prompt_counts_by_the_plan_of_its_admission(
        self, caller: Caller, plan: Plan, now: datetime
    ) -> None:
        Plan.objects.update(cached_input_percent=10)
        session = caller.session_id
        assert session is not None
        coding = load_caller(user_id=caller.user_id, session_id=session)
        assert coding is not None
        chat = parse({"messages": [{"role": "user", "content": "hello"}]}, stream=True)
        call = admit(caller=coding, request=chat, request_id="", now=now)
        meter = asking(call)
        meter.state, meter.prompt = State.DELIVERING, PromptUsage(9_000, cached_input=8_000)
        Plan.objects.update(cached_input_percent=100)
        assert (call.so_far().input, call.so_far().cached) == (9_000, 8_000)
        meter.report = TokenUsage(input=9_000, output=8, cached_input=8_000)
        call.settle(End.DONE)
        assert (record().input_tokens, record().capped_input) == (9_000, 1_800)
        left = plan.daily_tokens - 1_808
        assert call.remaining(now=now)["X-Tokens-Remaining-Day"] == str(left)

    def test_a_call_that_asked_nobody_charges_nothing(self, call: Call) -> None:
        call.settle(End.PROVIDER_FAILED)
        assert (record().input_tokens, record().output_tokens, record().source) == (0, 0, "counted")
        assert record().first_byte_at is None

    @pytest.mark.parametrize(
        ("times_input", "slack", "output", "is_implausible"),
        [(4, 1_000, 200, False), (4, 1_001, 200, True), (4, 1_000, 201, True)],
    )
    def test_an_implausible_report_is_charged_marked_and_told_to_operators(
        self,
        call: Call,
        caller: Caller,
        times_input: int,
        slack: int,
        output: int,
        is_implausible: bool,
    ) -> None:
        plausible = 4 * call.admission.estimate.tokens + 1_000
        given = times_input * call.admission.estimate.tokens + slack
        asking(call).report = TokenUsage(input=given, output=output, cached_input=given)
        call.settle(End.DONE)
        row = record()
        assert (row.input_tokens, row.cached_input_tokens) == (given, given)
        assert (row.output_tokens, row.source) == (output, "provider")
        assert row.is_implausible == is_implausible
        noticed = [(each.user_id, each.kind, each.used, each.cap) for each in Alert.objects.all()]
        alert = (caller.user_id, "report", given + output, plausible + 200)
        assert noticed == ([alert] if is_implausible else [])

    def test_operators_hear_of_a_persons_implausible_reports_once_a_day(
        self, call: Call, caller: Caller, now: datetime
    ) -> None:
        again = admit(caller=caller, request=call.admission.request, request_id="", now=now)
        for each in (call, again):
            asking(each).report = TokenUsage(input=1, output=1_000_000)
            each.settle(End.DONE)
        alert = Alert.objects.get(kind="report")
        assert alerts.mail_waiting(now=now) >= 1
        alert.refresh_from_db()
        assert alert.told_at == now

    def test_cache_writes_are_input_that_was_not_read_from_it(self, call: Call) -> None:
        asking(call).report = TokenUsage(input=9, output=8, cached_input=7, cache_write=50)
        settled = call.settle(End.DONE)
        assert (record().cached_input_tokens, record().cache_write_tokens) == (7, 2)
        assert settled.charged.cache_write == 2

    def test_the_record_has_the_time_of_the_first_byte(self, call: Call, now: datetime) -> None:
        meter = asking(call)
        meter.mark_first_byte()
        first = meter.first_byte_at
        meter.mark_first_byte()
        call.settle(End.DONE)
        assert now <= record().opened_at <= first == record().first_byte_at
        assert record().first_byte_at <= record().settled_at

    def test_only_the_first_end_takes_effect(self, call: Call) -> None:
        call.settle(End.TIMEOUT)
        call.settle(End.DONE)
        assert record().end == "timeout"
        assert MonthlyUsage.objects.get().output_reserved == 0


class TestWatch:
    @pytest.mark.parametrize(
        ("end", "code"),
        [
            ("epoch", "access_revoked"),
            ("disabled", "access_revoked"),
            ("session", "access_revoked"),
            ("session's time", "access_revoked"),
            ("suspended", "licence_suspended"),
            ("stopped", "model_calls_stopped"),
            ("told to end", "model_calls_stopped"),
            ("nothing", None),
        ],
    )
    def test_a_running_call_ends_with_its_access(
        self, call: Call, end: str, code: str | None, now: datetime, django_assert_num_queries
    ) -> None:
        match end:
            case "epoch":
                User.objects.update(epoch=1)
            case "disabled":
                User.objects.update(is_active=False)
            case "session":
                Session.objects.update(ended_at=now, ended_by="logout")
            case "session's time":
                Session.objects.update(expires_at=now - timedelta(hours=1))
            case "suspended":
                Licence.objects.update(operator_status="suspended", operator_reason="test")
            case "stopped":
                Stop.objects.create(
                    user_id=call.admission.caller.user_id, stopped_at=now, reason="test"
                )
            case "told to end":
                UsageRecord.objects.update(told_to_end_at=now)
        _, exchange = self.watch(call)
        with django_assert_num_queries(2):
            watch.end_refused()
        assert (call.stop.problem.code if call.stop.problem else None) == code
        assert exchange.closed == (code is not None)

    def test_no_query_is_made_without_running_calls(self, django_assert_num_queries) -> None:
        with django_assert_num_queries(0):
            watch.end_refused()

    def watch(self, call: Call):
        """The call as the watch sees it; it is forgotten when the test is over."""
        asking(call, sent_at=time.monotonic())
        watch._calls[call.id] = watched = watch._WatchedCall(call)
        return watched, call.attempt.exchange

    @pytest.fixture(autouse=True)
    def _forgotten(self) -> Iterator[None]:
        yield
        watch._calls.clear()

    def test_checkpoints_save_changed_costs(self, call: Call, django_assert_num_queries) -> None:
        watched, _ = self.watch(call)
        with django_assert_num_queries(1):
            watch.save_checkpoints()
        assert (record().checkpoint_input, record().checkpoint_output) == (
            call.admission.estimate.tokens,
            0,
        )
        with django_assert_num_queries(0):
            watch.save_checkpoints()
        meter = call.attempt.meter
        meter.state, meter.deltas, meter.size = State.DELIVERING, 7, 8
        meter.prompt = PromptUsage(33)
        with django_assert_num_queries(1):
            watch.save_checkpoints()
        assert (record().checkpoint_input, record().checkpoint_output) == (33, 7)
        watched.saved_at -= watch.HEARTBEAT_SECONDS
        with django_assert_num_queries(1):
            watch.save_checkpoints()
        assert record().state == "open"

    def test_a_one_shot_call_is_checkpointed_without_costs(self, call: Call) -> None:
        self.watch(whole(call))
        watch.save_checkpoints()
        assert record().checkpoint_at is not None
        assert record().checkpoint_output is None

    def test_a_call_whose_client_has_disconnected_is_cut(self, call: Call) -> None:
        _, exchange = self.watch(call)
        watch.end_disconnected()
        assert (call.left_at, exchange.closed) == (None, False)
        call.has_left = lambda: True
        watch.end_disconnected()
        assert call.left_at is not None
        assert (call.stop.reason, exchange.closed) == (StopReason.CLIENT_GONE, True)

    def test_thirty_whole_answers_are_read_on_for_each_person(self, call: Call) -> None:
        other = User.objects.create_user("other@example.com")
        callers = [call.admission.caller] * 31 + [replace(call.admission.caller, user_id=other.pk)]
        calls = [self.whole(call, each) for each in callers]
        exchanges = [self.watch(each)[1] for each in calls]
        for each in calls[:3]:
            each.has_left = lambda: True
        watch.end_disconnected()
        assert [each.closed for each in exchanges] == [False] * 32
        for each in calls[3:]:
            each.has_left = lambda: True
        watch.end_disconnected()
        assert [each.closed for each in exchanges] == [False] * 30 + [True, False]
        UsageRecord.objects.filter(pk=calls[0].id).delete()
        late = self.whole(call, call.admission.caller)
        late.has_left = lambda: True
        _, exchange = self.watch(late)
        watch.end_disconnected()
        assert not exchange.closed
        assert all(each.left_at is not None for each in (*calls, late))

    def whole(self, call: Call, caller: Caller) -> Call:
        """Another call of this caller, for a whole answer."""
        reservation = call.admission.reservation._replace(record_id=uuid4())
        opened = UsageRecord.objects.get(pk=call.id)
        opened.pk, opened.user_id = reservation.record_id, caller.user_id
        opened.expires_at = timezone.now() + timedelta(minutes=10)
        opened.save(force_insert=True)
        request = replace(call.admission.request, stream=False)
        return Call(
            replace(call.admission, caller=caller, request=request, reservation=reservation)
        )

    def test_a_background_read_ends_with_its_access(self, call: Call) -> None:
        call = whole(call)
        call.left_at = time.monotonic()
        _, exchange = self.watch(call)
        User.objects.update(is_active=False)
        watch.end_refused()
        assert exchange.closed
        assert call.stop.reason is StopReason.ACCESS_GONE

    def test_every_call_is_cut_where_the_process_ends(self, call: Call) -> None:
        exchanges = [
            self.watch(each)[1] for each in (call, self.whole(call, call.admission.caller))
        ]
        watch.end_all()
        assert all(each.closed for each in exchanges)

    @pytest.mark.parametrize("end", ["stopped", "client_gone", "timeout"])
    def test_a_cut_call_whose_relay_is_blocked_is_settled(
        self, call: Call, end: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Longer than this test may stand still.
        monkeypatch.setattr(watch, "HELD_UP_SECONDS", 300.0)
        watched, exchange = self.watch(call)
        reasons = {"stopped": StopReason.ACCESS_GONE, "client_gone": StopReason.CLIENT_GONE}
        if end == "timeout":
            call.deadline -= 600 + watch.HELD_UP_SECONDS
        else:
            watched.cut(reasons[end])
        watch.settle_held_up()
        assert record().state == "open", "its relay gets the time to do it itself"
        assert exchange.closed
        watched.cut_at -= watch.HELD_UP_SECONDS
        watch.settle_held_up()
        assert record().end == end
        assert call.id not in watch._calls

    def test_a_long_call_is_left_alone(self, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watch, "HELD_UP_SECONDS", 300.0)
        _, exchange = self.watch(call)
        call.deadline -= 600
        watch.settle_held_up()
        assert not exchange.closed
        assert record().state == "open"
