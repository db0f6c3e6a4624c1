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
from accounts.sessions.authentication import AccessRevoked
from accounts.sessions.sign_in import TokenPair
from config.api.handlers import openai_error
from config.api.problems import NotFound, Problem
from licensing.callers import Caller, load_caller
from licensing.models import Licence, Plan
from llmproxy.calls import watch
from llmproxy.calls.admission import CUT, Call, End, admit
from llmproxy.catalogue.choosing import NotEntitled, choose, offered
from llmproxy.dialects.protocol import PromptUsage, TokenUsage
from llmproxy.models import LanguageModel, Provider, Route, tokenizer_of
from llmproxy.prompts.estimates import least_tokens
from llmproxy.prompts.images import OTHERS_LARGEST
from llmproxy.requests.call_request import Surface
from llmproxy.requests.chat import parse
from usage import alerts
from usage.caps import Prices
from usage.models import Alert, Budget, MonthlyUsage, Stop, UsageRecord
from usage.periods import Period
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

    def test_what_the_caller_says_of_a_call_is_on_its_record(
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

    def test_before_the_settlement_they_are_those_before_the_call(self, call: Call) -> None:
        assert left(call) == ("100000", "100000")

    def test_after_it_they_are_less_by_what_was_charged(self, call: Call) -> None:
        call.began, call.reported = True, TokenUsage(30, 20)
        call.settle(End.DONE)
        assert left(call) == ("99980", "99950")

    def test_a_call_that_another_has_settled_says_what_was_left_before_it(self, call: Call) -> None:
        UsageRecord.objects.update(
            state="settled", settled_at=record().opened_at, source="counted", end="crashed"
        )
        call.settle(End.DONE)
        assert left(call) == ("100000", "100000")

    def test_without_caps_they_are_unlimited(self, caller: Caller, now: datetime) -> None:
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
        assert admitted.reservation.output_limit == 50

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
        with django_assert_num_queries(1):
            assert self.admitted(same, now).model.name == settings.LLM_DEFAULT_MODEL
        LanguageModel.objects.create(name="small", provider_name="s", output_limit=50)
        admitted = self.admitted(caller, now, model="small")
        assert admitted.model == choose("small", surface=Surface.CHAT, caller=caller)
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
        assert self.admitted(caller, now).model.targets[0].model == "x"

    def refuse_large(self, caller: Caller, now: datetime, text: str) -> Problem:
        """The refusal of a large call; two queries read the model, and another found the refusal."""
        chat = parse({"messages": [{"role": "user", "content": text}]}, stream=False)
        with (
            CaptureQueriesContext(connection) as queries,
            pytest.raises(Problem) as refused,
        ):
            admit(caller=caller, request=chat, request_id="", now=now, size=8_000_000)
        writes = [query for query in queries if "usage_alert" in query["sql"]]
        assert len(queries) - len(writes) == 3
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
        assert 773 <= least_tokens(chat.members) <= call.input_estimate

    @pytest.mark.parametrize(("tokens", "each"), [(None, OTHERS_LARGEST), (7, 7), (0, 0)])
    def test_images_cost_the_tokens_of_the_models_row(
        self, caller: Caller, now: datetime, settings: Settings, tokens: int | None, each: int
    ) -> None:
        LanguageModel.objects.create(name="eyes", provider_name="e", image_tokens=tokens)
        settings.LLM_BASE_URL = "https://llm.test/v1"
        image = {"type": "image_url", "image_url": {"url": "https://pictures.test/1"}}
        estimates = [
            self.admitted(
                caller, now, model="eyes", messages=[{"role": "user", "content": [image] * count}]
            ).input_estimate
            for count in (1, 3)
        ]
        assert estimates[1] - estimates[0] == 2 * each


class TestEnds:
    def test_the_providers_report_is_charged(self, call: Call) -> None:
        call.reported = TokenUsage(input=9, output=8, cached_input=7, reasoning=6)
        call.settle(End.DONE)
        row = record()
        assert (row.input_tokens, row.output_tokens, row.cached_input_tokens) == (9, 8, 7)
        assert (row.reasoning_tokens, row.source, row.end) == (6, "provider", "done")

    def test_an_explicit_zero_stays_zero(self, call: Call) -> None:
        call.began, call.finished, call.reported = True, True, TokenUsage(input=0, output=0)
        call.settle(End.DONE)
        assert (record().input_tokens, record().output_tokens, record().source) == (
            0,
            0,
            "provider",
        )

    @pytest.mark.parametrize(
        ("deltas", "size", "reported", "charged"),
        [
            (5, 40, 5, (5, "provider")),
            (5, 40, 4, (10, "counted")),
            (5, 40, 0, (10, "counted")),
            # Words of some languages: a token may hold many bytes.
            (2, 160, 10, (10, "provider")),
            (2, 161, 10, (41, "counted")),
        ],
    )
    def test_a_report_below_what_was_delivered_is_raised_to_it(
        self, call: Call, deltas: int, size: int, reported: int, charged: tuple[int, str]
    ) -> None:
        call.began, call.finished, call.deltas, call.size = True, True, deltas, size
        call.reported = TokenUsage(input=9, output=reported)
        call.settle(End.DONE)
        assert (record().output_tokens, record().source) == charged
        assert record().input_tokens == 9
        assert not Alert.objects.exists()

    def test_a_whole_answer_is_charged_what_it_holds_where_the_report_says_less(
        self, call: Call
    ) -> None:
        call.request = replace(call.request, stream=False)
        call.began, call.size, call.reported = True, 400, TokenUsage(input=9, output=1)
        call.settle(End.DONE)
        assert (record().output_tokens, record().source) == (100, "counted")

    @pytest.mark.parametrize(
        ("times_input", "output", "charged"), [(4, 200, 200), (5, 200, 200), (4, 201, 200)]
    )
    def test_an_absurd_report_is_charged_in_part_and_operators_hear_of_it(
        self, call: Call, caller: Caller, times_input: int, output: int, charged: int
    ) -> None:
        most = 4 * call.input_estimate
        given = times_input * call.input_estimate
        call.reported = TokenUsage(input=given, output=output, cached_input=given)
        call.settle(End.DONE)
        row = record()
        assert (row.input_tokens, row.cached_input_tokens) == (most, most)
        assert (row.output_tokens, row.source) == (charged, "provider")
        noticed = [(each.user_id, each.kind, each.used, each.cap) for each in Alert.objects.all()]
        is_absurd = times_input > 4 or output > 200
        told = (caller.user_id, "report", given + output, most + charged)
        assert noticed == ([told] if is_absurd else [])

    def test_operators_hear_of_a_persons_absurd_reports_once_a_day(
        self, call: Call, caller: Caller, now: datetime
    ) -> None:
        for each in (call, admit(caller=caller, request=call.request, request_id="", now=now)):
            each.reported = TokenUsage(input=1, output=1_000_000)
            each.settle(End.DONE)
        assert Alert.objects.count() == 1
        assert alerts.mail_waiting(now=now) == 1
        assert Alert.objects.get().told_at == now

    def test_delivered_output_is_charged_without_a_report(self, call: Call) -> None:
        call.began, call.deltas, call.size = True, 5, 8
        call.delta_at = time.monotonic()
        call.settle(End.CLIENT_GONE)
        row = record()
        assert (row.input_tokens, row.output_tokens) == (call.input_estimate, 5)
        assert (row.source, row.end) == ("counted", "client_gone")

    def test_a_provider_that_fails_before_its_first_byte_charges_nothing(self, call: Call) -> None:
        call.sent_at = time.monotonic
        call.settle(End.PROVIDER_FAILED)
        assert (record().input_tokens, record().output_tokens) == (0, 0)

    @pytest.mark.parametrize("end", CUT)
    def test_a_cut_that_the_provider_cannot_have_worked_for_is_free(
        self, call: Call, caller: Caller, now: datetime, end: End
    ) -> None:
        call.settle(end)
        refused = admit(caller=caller, request=call.request, request_id="", now=now)
        refused.sent_at, refused.refused = time.monotonic, True
        refused.settle(end)
        for row in UsageRecord.objects.all():
            assert (row.input_tokens, row.output_tokens, row.end) == (0, 0, end)

    @pytest.mark.parametrize("streamed", [True, False])
    @pytest.mark.parametrize("end", CUT)
    def test_a_cut_is_charged_for_the_prompt_and_the_time_since_it_was_sent(
        self, call: Call, end: End, streamed: bool, settings
    ) -> None:
        settings.LLM_UNSEEN_TOKENS_PER_SECOND = 10
        sent_at = time.monotonic() - 3
        call.request, call.sent_at = replace(call.request, stream=streamed), lambda: sent_at
        call.settle(end)
        row = record()
        assert (row.input_tokens, row.output_tokens) == (call.input_estimate, 30)
        assert row.source == "estimated", "nothing of it was counted"

    @pytest.mark.parametrize(
        ("end", "finished", "silence", "output"),
        [
            (End.CLIENT_GONE, False, 4, 45),
            (End.CLIENT_GONE, False, 600, 100),
            # After its finish reason nothing more is made, and a provider that failed has stopped.
            (End.CLIENT_GONE, True, 4, 5),
            (End.PROVIDER_FAILED, False, 4, 5),
            (End.DONE, True, 4, 5),
        ],
    )
    def test_the_silence_before_a_cut_counts_up_to_the_reservation(
        self, call: Call, end: End, finished: bool, silence: float, output: int, settings
    ) -> None:
        settings.LLM_UNSEEN_TOKENS_PER_SECOND = 10
        call.began, call.finished, call.deltas, call.size = True, finished, 5, 8
        call.sent_at = lambda: 0.0
        call.delta_at = time.monotonic() - silence
        call.settle(end)
        assert (record().output_tokens, record().source) == (output, "counted")

    def test_silence_takes_nothing_from_what_was_delivered(self, call: Call) -> None:
        call.began, call.deltas, call.size = True, 130, 130
        call.delta_at = time.monotonic() - 600
        call.settle(End.CLIENT_GONE)
        assert record().output_tokens == 130

    @pytest.mark.parametrize(
        ("reported", "exceeded", "charged"),
        [
            # Some providers report with each delta.
            (7, False, (7, "provider")),
            (7, True, (47, "counted")),
            # And some begin with an empty report.
            (0, False, (40, "counted")),
        ],
    )
    def test_a_report_in_mid_stream_counts_for_the_output_before_it(
        self, call: Call, reported: int, exceeded: bool, charged: tuple[int, str], settings
    ) -> None:
        settings.LLM_UNSEEN_TOKENS_PER_SECOND = 10
        call.began, call.exceeds_report = True, exceeded
        call.reported = TokenUsage(input=9, output=reported)
        since = time.monotonic() - 4
        call.sent_at = lambda: since
        call.settle(End.CLIENT_GONE)
        assert (record().output_tokens, record().source) == charged
        assert record().input_tokens == 9

    def test_an_empty_report_at_the_beginning_makes_no_prompt_free(self, call: Call) -> None:
        call.began, call.reported = True, TokenUsage(input=0, output=0)
        call.settle(End.CLIENT_GONE)
        assert record().input_tokens == call.input_estimate > 0

    def test_a_reported_prompt_is_no_estimate(self, call: Call) -> None:
        call.began, call.prompt = True, PromptUsage(33)
        call.settle(End.CLIENT_GONE)
        assert (record().input_tokens, record().source) == (33, "counted")

    def test_cached_and_reasoning_tokens_never_exceed_their_total(self, call: Call) -> None:
        call.reported = TokenUsage(input=9, output=8, cached_input=70, reasoning=60)
        call.settle(End.DONE)
        assert (record().cached_input_tokens, record().reasoning_tokens) == (9, 8)

    def test_what_is_written_to_a_cache_is_input_that_was_not_read_from_it(
        self, call: Call
    ) -> None:
        call.reported = TokenUsage(input=9, output=8, cached_input=7, cache_write=50)
        call.settle(End.DONE)
        assert (record().cached_input_tokens, record().cache_write_tokens) == (7, 2)
        assert call.charged_usage().cache_write == 2

    def test_the_record_has_the_time_of_the_first_byte(self, call: Call, now: datetime) -> None:
        call.mark_first_byte()
        first = call.first_byte_at
        call.mark_first_byte()
        call.settle(End.DONE)
        assert now <= record().opened_at <= first == record().first_byte_at
        assert record().first_byte_at <= record().settled_at

    def test_a_call_that_never_began_has_no_first_byte(self, call: Call) -> None:
        call.settle(End.PROVIDER_FAILED)
        assert record().first_byte_at is None

    def test_only_the_first_end_counts(self, call: Call) -> None:
        call.settle(End.TIMEOUT)
        call.settle(End.DONE)
        assert record().end == "timeout"
        assert MonthlyUsage.objects.get().output_reserved == 0


class TestRunaways:
    """The call was granted 100 tokens."""

    @pytest.mark.parametrize(
        ("deltas", "size", "said", "is_runaway"),
        [
            (100, 400, None, False),
            # Pieces of less than a token, tokens of many bytes.
            (456, 456, None, False),
            (100, 456 * 8, None, False),
            (457, 457, None, True),
            (1, 457 * 8, None, True),
            (1, 1, 456, False),
            (1, 1, 457, True),
        ],
    )
    def test_a_provider_far_past_its_output_limit_is_a_runaway(
        self, call: Call, deltas: int, size: int, said: int | None, is_runaway: bool
    ) -> None:
        call.deltas, call.size = deltas, size
        call.reported = None if said is None else TokenUsage(input=1, output=said)
        assert call.is_runaway() == is_runaway


class TestWatch:
    class Exchange:
        closed = False

        def close(self) -> None:
            self.closed = True

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
                Stop.objects.create(user_id=call.caller.user_id, stopped_at=now, reason="test")
            case "told to end":
                UsageRecord.objects.update(told_to_end_at=now)
        exchange = self.Exchange()
        watch._calls[call.id] = watch._WatchedCall(call, exchange)
        try:
            with django_assert_num_queries(2):
                watch.end_refused()
        finally:
            watch.forget(call)
        assert (call.stopped.code if call.stopped else None) == code
        assert exchange.closed == (code is not None)

    def test_without_running_calls_there_are_no_queries(self, django_assert_num_queries) -> None:
        with django_assert_num_queries(0):
            watch.end_refused()

    def watch(self, call: Call):
        """The call as the watch knows it; it is forgotten when the test is over."""
        exchange = self.Exchange()
        watch._calls[call.id] = watched = watch._WatchedCall(call, exchange)
        return watched, exchange

    @pytest.fixture(autouse=True)
    def _forgotten(self) -> Iterator[None]:
        yield
        watch._calls.clear()

    def test_checkpoints_save_changed_costs(self, call: Call, django_assert_num_queries) -> None:
        watched, _ = self.watch(call)
        call.sent_at = time.monotonic
        with django_assert_num_queries(1):
            watch.save_checkpoints()
        assert (record().checkpoint_input, record().checkpoint_output) == (call.input_estimate, 0)
        with django_assert_num_queries(0):
            watch.save_checkpoints()
        call.began, call.deltas, call.size = True, 7, 8
        call.prompt = PromptUsage(33)
        with django_assert_num_queries(1):
            watch.save_checkpoints()
        assert (record().checkpoint_input, record().checkpoint_output) == (33, 7)
        watched.saved_at -= watch.HEARTBEAT_SECONDS
        with django_assert_num_queries(1):
            watch.save_checkpoints()
        assert record().state == "open"

    def test_a_one_shot_call_is_checkpointed_without_costs(self, call: Call) -> None:
        call.request = replace(call.request, stream=False)
        self.watch(call)
        watch.save_checkpoints()
        assert record().checkpoint_at is not None
        assert record().checkpoint_output is None

    def test_a_call_whose_client_has_disconnected_is_cut(self, call: Call) -> None:
        _, exchange = self.watch(call)
        watch.end_disconnected()
        assert (call.disconnected, exchange.closed) == (False, False)
        call.is_disconnected = lambda: True
        watch.end_disconnected()
        assert (call.disconnected, exchange.closed) == (True, True)

    def test_whole_answers_are_read_on_a_few_at_once_for_each_person(self, call: Call) -> None:
        other = User.objects.create_user("other@example.com")
        callers = [call.caller] * 5 + [replace(call.caller, user_id=other.pk)]
        calls = [self.whole(call, each) for each in callers]
        exchanges = [self.watch(each)[1] for each in calls]
        for each in calls[:3]:
            each.is_disconnected = lambda: True
        watch.end_disconnected()
        assert [each.closed for each in exchanges] == [False] * 6
        for each in calls[3:]:
            each.is_disconnected = lambda: True
        watch.end_disconnected()
        assert [each.closed for each in exchanges] == [False] * 4 + [True, False]
        UsageRecord.objects.filter(pk=calls[0].id).delete()
        late = self.whole(call, call.caller)
        late.is_disconnected = lambda: True
        _, exchange = self.watch(late)
        watch.end_disconnected()
        assert not exchange.closed
        assert all(each.disconnected for each in (*calls, late))

    def whole(self, call: Call, caller: Caller) -> Call:
        reservation = call.reservation._replace(record_id=uuid4())
        chat = replace(call.request, stream=False)
        opened = UsageRecord.objects.get(pk=call.id)
        opened.pk, opened.user_id = reservation.record_id, caller.user_id
        opened.expires_at = timezone.now() + timedelta(minutes=10)
        opened.save(force_insert=True)
        return replace(call, caller=caller, request=chat, reservation=reservation)

    def test_a_background_read_ends_with_its_access(self, call: Call) -> None:
        call.request, call.disconnected = replace(call.request, stream=False), True
        _, exchange = self.watch(call)
        User.objects.update(is_active=False)
        watch.end_refused()
        assert exchange.closed
        assert call.stopped is not None

    def test_every_call_is_cut_where_the_process_ends(self, call: Call) -> None:
        exchanges = [self.watch(each)[1] for each in (call, self.whole(call, call.caller))]
        watch.end_all()
        assert all(each.closed for each in exchanges)

    @pytest.mark.parametrize("end", ["stopped", "client_gone", "timeout"])
    def test_a_cut_call_whose_relay_is_blocked_is_settled(self, call: Call, end: str) -> None:
        watched, exchange = self.watch(call)
        call.stopped = AccessRevoked() if end == "stopped" else None
        call.disconnected = end == "client_gone"
        if end == "timeout":
            watched.began -= 600 + watch.HELD_UP_SECONDS
        else:
            watched.cut()
        watch.settle_held_up()
        assert record().state == "open", "its relay gets the time to do it itself"
        assert exchange.closed
        watched.cut_at -= watch.HELD_UP_SECONDS
        watch.settle_held_up()
        assert record().end == end
        assert call.id not in watch._calls

    def test_a_long_call_is_left_alone(self, call: Call) -> None:
        watched, exchange = self.watch(call)
        watched.began -= 600
        watch.settle_held_up()
        assert not exchange.closed
        assert record().state == "open"
