"""What a provider calls the output limit: by its address, or as an operator says."""

import json

import pytest
from pytest_django.fixtures import Settings

from llmproxy.catalogue.vendors import limit_name
from llmproxy.dialects.protocol import ProviderRejected
from llmproxy.dialects.refusals import ContextTooLong, LimitNameRefused
from llmproxy.models import Provider
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
def test_an_address_says_the_name(settings: Settings, address: str, name: str) -> None:
    settings.LLM_BASE_URL, settings.LLM_LIMIT_NAME = address, ""
    assert limit_name(Provider(name="theirs", base_url=address)) == name
    assert limit_name(Provider(name=Provider.DEFAULT)) == name


@pytest.mark.parametrize("name", [OLD, NEW])
def test_an_operator_says_otherwise(settings: Settings, name: str) -> None:
    settings.LLM_BASE_URL, settings.LLM_LIMIT_NAME = "https://api.openai.com/v1", name
    address = "https://api.openai.com/v1"
    assert limit_name(Provider(name="theirs", base_url=address, limit_name=name)) == name
    assert limit_name(Provider(name=Provider.DEFAULT)) == name


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Unsupported parameter: 'max_tokens' is not supported with this model.", LimitNameRefused),
        ("max_completion_tokens: Extra inputs are not permitted", LimitNameRefused),
        ("max_tokens is too large: 5000.", ProviderRejected),
        ("Unsupported value: 'temperature' does not support 0.", ProviderRejected),
        ("max_tokens exceeds the maximum context length, ask for less instead", ContextTooLong),
    ],
)
def test_a_refusal_of_the_name_is_known_by_its_words(said: str, kind: type) -> None:
    body = json.dumps({"error": {"message": said}}).encode()
    assert type(refusal_of(400, {}, body)) is kind
