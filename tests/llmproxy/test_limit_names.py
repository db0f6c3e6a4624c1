"""Names of the output limit at providers: by address, or as an operator says."""

import json
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from llmproxy.catalogue.limit_names import limit_name
from llmproxy.dialects.protocol import ProviderRejected
from llmproxy.dialects.refusals import ContextTooLong, LimitNameRefused, MemberRefused
from llmproxy.models import Provider
from tests.effort import takes_at_most
from tests.llmproxy.targets import refusal_of

OLD, NEW = "max_tokens", "max_completion_tokens"


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://api.openai.com/v1", NEW),
        ("https://eu.api.openai.com/v1", NEW),
        ("https://house.openai.azure.com/openai/v1", NEW),
        ("https://api.openai.com.example.org/v1", OLD),
        ("https://openrouter.ai/api/v1", OLD),
        ("http://127.0.0.1:11434/v1", OLD),
    ],
)
def test_an_address_determines_the_name(settings: Settings, address: str, name: str) -> None:
    settings.LLM_BASE_URL, settings.LLM_LIMIT_NAME = address, ""
    assert limit_name(Provider(name="theirs", base_url=address)) == name
    assert limit_name(Provider(name=Provider.DEFAULT)) == name


@pytest.mark.parametrize("name", [OLD, NEW])
def test_an_operators_choice_overrides_the_name(settings: Settings, name: str) -> None:
    settings.LLM_BASE_URL, settings.LLM_LIMIT_NAME = "https://api.openai.com/v1", name
    address = "https://api.openai.com/v1"
    assert limit_name(Provider(name="theirs", base_url=address, limit_name=name)) == name
    assert limit_name(Provider(name=Provider.DEFAULT)) == name


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Unsupported parameter: 'max_tokens' is not supported with this model.", LimitNameRefused),
        ("Unsupported parameter: 'max_tokens' is not supported with gpt-5.2-2025-12-11.", LimitNameRefused),
        ("Unrecognized request argument supplied: max_completion_tokens", LimitNameRefused),
        ("property 'max_completion_tokens' is unsupported", LimitNameRefused),
        ("Additional properties are not allowed ('max_completion_tokens' was unexpected)", LimitNameRefused),
        ("Unsupported parameter(s): `max_completion_tokens`", LimitNameRefused),
        ("max_completion_tokens is not allowed", LimitNameRefused),
        ("[{'type': 'extra_forbidden', 'loc': ('body', 'max_completion_tokens'), 'msg': 'Extra inputs'}]",
         LimitNameRefused),
        ("This model does not support parameter max_tokens", LimitNameRefused),
        ("Argument not supported on this model: max_tokens", LimitNameRefused),
        ('Invalid JSON payload received. Unknown name "max_completion_tokens": Cannot find field.', LimitNameRefused),
        ("unknown field `max_completion_tokens`, expected `model` at line 1 column 90", LimitNameRefused),
        ("max_tokens is for older models. Please use 'max_completion_tokens' instead.", LimitNameRefused),
        ([{"loc": ["body", "max_completion_tokens"], "msg": "Extra inputs are not permitted", "input": 5000}],
         LimitNameRefused),
        ("max_tokens is too large: 5000.", ProviderRejected),
        ("Invalid 'max_tokens': integer above maximum value. Expected a value <= 4096, but got 5000 instead.",
         ProviderRejected),
        ("max_tokens: 5000 is not supported by this model.", ProviderRejected),
        ("max_tokens is not supported above 4,096.", ProviderRejected),
        ("A max_completion_tokens of 5000 is not permitted. Use max_completion_tokens 4096 instead.", ProviderRejected),
        ("Unsupported value: 'max_tokens' does not support 5000 with this model.", ProviderRejected),
        ("This is not supported for max_tokens=5000", ProviderRejected),
        ("unknown field `top_k`, expected one of `model`, `max_tokens`", MemberRefused),
        ("Unsupported value: 'temperature' does not support 0.", MemberRefused),
        ("max_tokens exceeds the maximum context length, ask for less instead", ContextTooLong),
    ],
)  # fmt: skip
def test_a_refusal_of_the_name_is_known_by_its_words(said: Any, kind: type) -> None:
    """Asked again by the other name, a server that finds the limit too large might know none."""
    body = json.dumps(
        {"error": {"message": said} if isinstance(said, str) else None, "detail": said}
    ).encode()
    assert type(refusal_of(400, {}, body)) is kind


@pytest.mark.parametrize("part", ["'", "unknown ", "max_tokens ", "extra_forbidden "])
def test_a_refusal_that_repeats_a_hostile_text_takes_little_time(part: str) -> None:
    body = json.dumps({"error": {"message": part * (60_000 // len(part))}}).encode()
    assert type(refusal_of(400, {}, body)) is ProviderRejected
    assert takes_at_most(50, lambda: refusal_of(400, {}, body))


def test_a_refusal_of_the_name_is_known_by_its_code_too() -> None:
    for code, param, kind in (
        ("unsupported_parameter", OLD, LimitNameRefused),
        ("unknown_parameter", NEW, LimitNameRefused),
        ("unsupported_parameter", "top_k", MemberRefused),
        ("unsupported_parameter", "tools", ProviderRejected),
        ("unsupported_value", OLD, ProviderRejected),
    ):
        error = {"message": "This is not possible.", "code": code, "param": param}
        assert type(refusal_of(400, {}, json.dumps({"error": error}).encode())) is kind
