"""Members that models are known to refuse, and refusals by which providers name others."""

import json
from typing import Any

import pytest

from llmproxy.dialects.anthropic.thinking import takes_effort
from llmproxy.dialects.model_rules import Refused, dropped, left_out
from llmproxy.dialects.protocol import ProviderRejected
from llmproxy.dialects.refusals import MemberRefused
from tests.effort import takes_at_most
from tests.llmproxy.targets import refusal_of

ALL = {"temperature": 0.2, "top_p": 0.9, "top_k": 5}
NONE: set[str] = set()


@pytest.mark.parametrize(
    ("model", "gone"),
    [
        # theopenco/llmgateway#3108, The-PR-Agent/pr-agent#2456, vogler75/monster-mq#168
        *((name, {"temperature", "top_p", "top_k"}) for name in (
            "claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-5", "claude-opus-5-5", "claude-fable-5",
            "anthropic/claude-opus-4.7", "us.anthropic.claude-opus-4-7-v1:0", "claude-sonnet-5@20260801",
            "claude-haiku-10",
        )),
        # router-for-me/CLIProxyAPI#4428, NeatChat/NeatChat#72, Vali-98/ChatterUI#564, open-webui/pipelines#546
        *((name, {"top_p"}) for name in (
            "claude-opus-4-1-20250805", "claude-sonnet-4-5-20250929", "claude-haiku-4-5", "claude-sonnet-4.6",
            "bedrock/eu.anthropic.claude-opus-4-6-v1",
        )),
        *((name, NONE) for name in (
            "claude-3-5-sonnet-20241022", "claude-sonnet-4-20250514", "claude-opus-4", "claude-instant-1.2", "gpt-4o",
            "gpt-5.1", "gpt-5-chat-latest", "llama-o3", "claude-house", "mistral-large",
        )),
        *((name, {"temperature", "top_p"}) for name in (
            "o3-mini", "o1", "openai/o4-mini-2025-04-16", "gpt-5", "gpt-5-mini", "gpt-5-2025-08-07", "gpt-5-nano",
        )),
    ],
)  # fmt: skip
def test_a_model_gets_no_member_that_it_is_known_to_refuse(model: str, gone: set[str]) -> None:
    assert left_out(ALL, model=model) == gone
    assert dropped(ALL, gone) == sorted(gone)
    assert left_out({"messages": [], "seed": 1}, model=model) == NONE


def test_a_default_stays_and_a_pair_gives_up_the_one_that_says_nothing() -> None:
    newest, pair = "claude-opus-5-5", "claude-sonnet-4-5"
    assert left_out({"temperature": 1, "top_p": 1.0}, model=newest) == NONE
    assert left_out({"temperature": 0.2}, model=pair) == NONE
    assert left_out({"temperature": 1, "top_p": 0.5}, model=pair) == {"temperature"}
    assert left_out({"temperature": 0.5, "top_p": 1}, model=pair) == {"top_p"}
    assert dropped({"temperature": 0.5, "top_p": 1}, {"top_p"}) == []
    probable = {
        "logprobs": True,
        "top_logprobs": 3,
        "presence_penalty": 0,
        "frequency_penalty": 0.1,
    }
    gone = {"logprobs", "top_logprobs", "frequency_penalty"}
    assert left_out(probable, model="o3") == gone


def test_members_that_a_model_has_refused_are_left_out_too() -> None:
    assert left_out(ALL, model="house", also={Refused("temperature"), Refused("seed")}) == {
        "temperature"
    }


@pytest.mark.parametrize(
    ("model", "takes"),
    [
        ("claude-opus-4-5", False), ("claude-opus-4.5", False), ("claude-sonnet-4-20250514", False),
        ("claude-sonnet-4@20250514", False), ("claude-3-7-sonnet-latest", False), ("claude-opus-4-6", True),
        ("claude-opus-4.7", True), ("claude-sonnet-5", True), ("claude-opus-4-10", True), ("glm-5", False),
    ],
)  # fmt: skip
def test_the_same_table_says_which_models_take_an_effort(model: str, takes: bool) -> None:
    assert takes_effort(model) is takes


@pytest.mark.parametrize(
    ("said", "member"),
    [
        ("temperature is deprecated for this model.", "temperature"),
        ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", "top_p"),
        ("temperature and top_p cannot both be specified for this model. Please use only one.", "top_p"),
        ("Unsupported parameter: 'top_p' is not supported with this model.", "top_p"),
        ("Unsupported value: 'temperature' does not support 0.2. Only the default (1) is.", "temperature"),
        ("top_k: Extra inputs are not permitted", "top_k"),
        ("Unrecognized request argument supplied: logit_bias", "logit_bias"),
        ("logprobs are not supported with this model", "logprobs"),
        ("'presence_penalty' is not supported by this model", "presence_penalty"),
        ("temperature: must be less than or equal to 1", None),
        ("Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3.", None),
        ("top_k: 5000 is not supported by this model.", None),
        ("temperature is required", None),
        ("The image is not supported with this model", None),
        ("tools are not supported with this model; temperature was 1", None),
    ],
)  # fmt: skip
def test_a_refusal_of_a_member_is_known_by_its_words(said: str, member: str | None) -> None:
    problem: Any = refusal_of(400, {}, json.dumps({"error": {"message": said}}).encode())
    if member is None:
        assert type(problem) is ProviderRejected
    else:
        assert isinstance(problem, MemberRefused)
        assert problem.refused.member == member


@pytest.mark.parametrize("part", ["`", "temperature ", "unsupported ", "temperature and top_p "])
def test_words_that_are_made_to_be_slow_are_read_soon(part: str) -> None:
    body = json.dumps({"error": {"message": part * (60_000 // len(part))}}).encode()
    assert takes_at_most(50, lambda: refusal_of(400, {}, body))
