"""The table of docs/charges.csv: 100 tokens reserved, a prompt of 50 (40 by an exact count), 10 tokens a second."""

import csv
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from licensing.callers import Caller
from llmproxy.calls.admission import Admission
from llmproxy.calls.attempt import Attempt
from llmproxy.calls.charge import abandoned, charge, excess
from llmproxy.calls.meter import Meter, Silence, State
from llmproxy.catalogue.choosing import Choice
from llmproxy.dialects.protocol import Piece, PromptUsage, TokenUsage
from llmproxy.models import is_known_to_think
from llmproxy.prompts.estimates import Estimate
from llmproxy.requests.call_request import Surface
from llmproxy.requests.chat import parse
from tests.llmproxy.calling import Exchange
from tests.llmproxy.targets import target
from usage.caps import Reservation
from usage.models import UsageRecord

NOW = 10_000.0
TABLE = Path(__file__).parents[2] / "docs" / "charges.csv"
CASES = list(csv.DictReader(TABLE.read_text().splitlines()))


@pytest.fixture(autouse=True)
def _ten_tokens_a_second(settings: Any) -> None:
    settings.LLM_UNSEEN_TOKENS_PER_SECOND = 10


def admitted(kind: str = "stream", *, context_length: int | None = None) -> Admission:
    asked = {"messages": [{"role": "user", "content": "hello"}]}
    if kind == "thinks":
        asked |= {"reasoning_effort": "high"}
    first = target()._replace(thinks=kind == "thinker")
    caller = Caller.__new__(Caller)
    return Admission(
        caller=caller,
        request=parse(asked, stream=kind != "whole"),
        model=Choice("house", 4096, None, (first,), context_length),
        targets=(first,),
        reservation=Reservation(uuid4(), 100, None, None, None),
        estimate=Estimate(counted=40, tokens=50, exact=None if kind == "inexact" else 40),
    )


def attempted(admission: Admission, *, sent_at: float | None) -> Attempt:
    attempt = Attempt(admission.targets[0], admission.estimate, deadline=NOW)
    attempt.exchange = Exchange(sent_at)  # type: ignore[assignment]
    return attempt


def number(cell: str) -> float | None:
    return float(cell) if cell else None


@pytest.mark.parametrize("case", CASES, ids=[each["case"] for each in CASES])
def test_each_case_is_charged_as_the_table_says(case: dict[str, str]) -> None:
    admission = admitted(case["kind"])
    wait, since = number(case["wait"]) or 0.0, number(case["since"]) or 0.0
    silence = number(case["silence"]) or 0.0
    sent_at = NOW - since - silence - wait
    attempt = attempted(admission, sent_at=None if case["kind"] == "unsent" else sent_at)
    meter = attempt.meter
    meter.state = State[case["state"].upper()]
    meter.is_unread = case["unread"] == "yes"
    meter.deltas, meter.size = int(case["deltas"]), int(case["bytes"])
    if meter.deltas:
        meter.first_delta_at, meter.delta_at = sent_at + wait, NOW - since
    if silence:
        meter.silences.append(Silence(silence, NOW - since, int(case["burst"])))
    if case["reported_input"]:
        cached = int(case["cached"] or 0)
        given, made = int(case["reported_input"]), int(case["reported_output"])
        meter.report = TokenUsage(given, made, cached_input=cached)
    if case["prompt"]:
        meter.prompt = PromptUsage(int(case["prompt"]))
    spent, source = charge(admission, meter, attempt, UsageRecord.End(case["end"]), NOW)
    expected = int(case["input"]), int(case["output"]), case["source"]
    assert (spent.input, spent.output, source) == expected


def test_a_charge_ends_at_the_context_of_the_model() -> None:
    admission = admitted(context_length=4_000)
    attempt = attempted(admission, sent_at=NOW)
    attempt.meter.report = TokenUsage(9_000, 9_000, cached_input=8_000)
    spent, _ = charge(admission, attempt.meter, attempt, UsageRecord.End.DONE, NOW)
    assert (spent.input, spent.output, spent.cached_input) == (4_000, 4_000, 4_000)


def test_a_batch_of_embeddings_may_be_longer_than_the_context_of_each_input() -> None:
    request = replace(admitted().request, surface=Surface.EMBEDDINGS, stream=False)
    admission = replace(admitted(context_length=8_000), request=request)
    attempt = attempted(admission, sent_at=NOW)
    attempt.meter.report = TokenUsage(300_000, 0)
    spent, _ = charge(admission, attempt.meter, attempt, UsageRecord.End.DONE, NOW)
    assert spent.input == 300_000


@pytest.mark.parametrize(
    ("report", "prompt", "expected"),
    [
        (TokenUsage(2_000_000, 9, cached_input=3_000_000), None, (1_000_000, 1_000_000, 9)),
        (None, PromptUsage(33), (33, 0, 0)),
        (None, None, None),
    ],
)
def test_a_refused_attempt_is_listed_with_what_it_reported_as_far_as_that_is_possible(
    report: TokenUsage | None, prompt: PromptUsage | None, expected: tuple[int, ...] | None
) -> None:
    admission = admitted()
    attempt = attempted(admission, sent_at=NOW)
    attempt.meter.state, attempt.failure_report = State.ENDED, report
    attempt.meter.prompt = prompt
    left = abandoned(admission, attempt, now=datetime.now(UTC))
    spent = left and (left.spent.input, left.spent.cached_input, left.spent.output)
    assert spent == expected


@pytest.mark.parametrize(
    ("kind", "since", "state", "end", "expected"),
    [
        ("thinker", 0.3, State.ANSWERING, "client_gone", (8, "provider")),
        ("thinker", 0.5, State.FINISHED, "client_gone", (8, "provider")),
        ("thinker", 3.0, State.FINISHED, "client_gone", (8, "provider")),
        ("thinker", 3.0, State.ANSWERING, "provider_failed", (8, "provider")),
        ("thinker", 3.0, State.ANSWERING, "client_gone", (38, "counted")),
        ("thinker", 3.0, State.ANSWERING, "stopped", (38, "counted")),
        ("stream", 30.0, State.ANSWERING, "client_gone", (38, "counted")),
        ("thinker", 60.0, State.ANSWERING, "client_gone", (100, "counted")),
    ],
)
def test_a_report_of_a_part_is_not_of_what_was_made_unseen_after_it(
    kind: str, since: float, state: State, end: str, expected: tuple[int, str]
) -> None:
    """Some servers report with their first chunk, and then think."""
    admission = admitted(kind)
    attempt = attempted(admission, sent_at=NOW - since - 1)
    meter = attempt.meter
    meter.state, meter.report, meter.reported_at = state, TokenUsage(45, 8), NOW - since
    spent, source = charge(admission, meter, attempt, UsageRecord.End(end), NOW)
    assert (spent.output, source) == expected


@pytest.mark.parametrize(("is_all", "expected"), [(True, 8), (False, 100)])
def test_an_unread_attempt_is_listed_with_its_reservation_where_it_reported_a_part(
    is_all: bool, expected: int
) -> None:
    admission = admitted()
    attempt = attempted(admission, sent_at=NOW)
    attempt.meter.state, attempt.meter.report = State.ANSWERING, TokenUsage(19, 8)
    attempt.meter.mark_unread(attempt.meter.report if is_all else None)
    left = abandoned(admission, attempt, now=datetime.now(UTC))
    assert left is not None
    assert (left.spent.input, left.spent.output) == (19, expected)


@pytest.mark.parametrize(
    ("name", "thinks"),
    [
        ("o3-mini", True),
        ("gpt-5.2", True),
        ("gpt-5-chat-latest", False),
        ("openai/gpt-oss-20b", True),
        ("qwen3-235b-thinking", True),
        ("qwen3-235b-non-thinking", False),
        ("grok-4-fast-non-reasoning", False),
        ("gpt-4o", False),
    ],
)
def test_families_that_think_are_known_by_their_names(name: str, thinks: bool) -> None:
    assert is_known_to_think(name) == thinks


def test_cached_and_reasoning_tokens_never_exceed_their_total() -> None:
    admission = admitted()
    attempt = attempted(admission, sent_at=NOW)
    attempt.meter.report = TokenUsage(45, 8, cached_input=70, reasoning=60, cache_write=10)
    spent, _ = charge(admission, attempt.meter, attempt, UsageRecord.End.DONE, NOW)
    assert (spent.cached_input, spent.cache_write, spent.reasoning) == (45, 0, 8)


def test_a_checkpoint_leaves_out_what_may_have_been_made_unseen() -> None:
    admission = admitted("thinker")
    attempt = attempted(admission, sent_at=NOW - 5)
    spent, _ = charge(admission, attempt.meter, attempt, UsageRecord.End.CRASHED, None)
    assert (spent.input, spent.output) == (50, 0)


@pytest.mark.parametrize(
    ("given", "made", "is_implausible"),
    [(1_200, 200, False), (1_201, 200, True), (1_200, 201, True), (0, 0, False)],
)
def test_a_report_is_implausible_beyond_what_prompt_and_limit_explain(
    given: int, made: int, is_implausible: bool
) -> None:
    meter = Meter(report=TokenUsage(given, made))
    assert excess(admitted(), meter) == ((given + made, 1_400) if is_implausible else None)


@pytest.mark.parametrize(
    ("members", "thinks"),
    [
        ({}, False),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "low"}, True),
        ({"reasoning": {"max_tokens": 500}}, True),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, True),
        ({"thinking": {"type": "disabled"}}, False),
    ],
)
def test_a_request_that_asks_to_think_says_so(members: dict[str, Any], thinks: bool) -> None:
    request = admitted().request
    assert replace(request, members={**request.members, **members}).thinks == thinks


class TestMeters:
    def played(self, monkeypatch: pytest.MonkeyPatch, *pieces: tuple[float, int]) -> Meter:
        meter = Meter()
        for at, size in pieces:
            monkeypatch.setattr("llmproxy.calls.meter.time.monotonic", lambda at=at: at)
            meter.count(Piece(size=size))
        return meter

    def test_a_short_pause_is_no_silence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        meter = self.played(monkeypatch, (1.0, 4), (1.9, 4), (2.8, 4))
        assert (meter.silences, meter.deltas, meter.size) == ([], 3, 12)
        assert len(self.played(monkeypatch, (1.0, 4), (2.0, 4)).silences) == 1

    def test_a_burst_is_what_comes_soon_after_a_silence(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        soon, late = 9.9, 10.2
        meter = self.played(monkeypatch, (1.0, 4), (9.0, 4), (soon, 40), (late, 400))
        assert meter.silences == [Silence(8.0, 9.0, 11)]
        assert (meter.first_delta_at, meter.delta_at) == (1.0, late)

    @pytest.mark.parametrize(
        ("deltas", "size", "reported", "is_runaway"),
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
        self, deltas: int, size: int, reported: int | None, is_runaway: bool
    ) -> None:
        report = None if reported is None else TokenUsage(input=1, output=reported)
        meter = Meter(deltas=deltas, size=size, report=report)
        assert meter.is_runaway(limit=100) == is_runaway
