"""Streams in the shapes of providers, through the service as it is run, heard by OpenAI's own SDK."""

import json
import os
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.served.conftest import Ground, SignIn
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, the_record
from tests.served.people import Person
from tests.served.service import Service, running_service
from tests.served.shell import PATIENCE, Shell, sending
from tests.standins.anthropic_server import MessagesServer, message, messages_server
from tests.standins.streams import Shape, as_heard

SHAPES = {shape.name: shape for shape in Shape.all()}
# `tests/llmproxy/test_streams.py` reads every shape; here is one of each kind.
SAMPLE = [
    "openai/characters",
    "openai/tools",
    "mistral/thinking-parts",
    "moonshot/usage-in-choice",
    "openrouter/comments-and-cost",
]
TRANSLATED = ["interleaved-thinking", "arguments-cut", "refusal"]


def sdk_of(shell: Shell) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{shell.base_url}/v1/llm",
        api_key=shell.access,
        max_retries=0,
        timeout=PATIENCE,
        http_client=openai.DefaultHttpxClient(trust_env=False),
    )


def final_of(sdk: openai.OpenAI, text: str) -> Any:
    """Returns the result of the SDK's own helper."""
    with sdk.chat.completions.stream(
        model="stand-in-small",
        messages=[{"role": "user", "content": text}],
        stream_options={"include_usage": True},
    ) as stream:
        stream.until_done()
        return stream.current_completion_snapshot


def assert_heard_and_metered(shape: Shape, final: Any, database: Database, person: Person) -> None:
    assert as_heard(final) == shape.heard
    record = the_record(database, person)
    assert (record.end, record.source) == ("done", "provider")
    metered = [
        record.input_tokens,
        record.output_tokens,
        record.cached_input_tokens,
        record.reasoning_tokens,
        record.cache_write_tokens,
    ]
    assert metered == shape.metered
    told = final.usage
    assert [told.prompt_tokens, told.completion_tokens, told.total_tokens] == [
        *metered[:2],
        sum(metered[:2]),
    ]
    assert_nothing_is_reserved(database, person)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_caller_hears_what_the_provider_said_and_pays_what_it_reported(
    shell: Shell, database: Database, person: Person, name: str
) -> None:
    with sdk_of(shell) as sdk:
        final = final_of(sdk, sending(*SHAPES[name].events()))
    assert_heard_and_metered(SHAPES[name], final, database, person)


@pytest.mark.parametrize(
    ("name", "kind", "wait"),
    [
        ("vllm/error-first", openai.BadRequestError, None),
        ("gemini/exhausted", openai.InternalServerError, "31"),
    ],
)
def test_an_error_as_the_first_event_is_an_http_error_that_costs_nothing(
    shell: Shell,
    database: Database,
    person: Person,
    name: str,
    kind: type[openai.APIStatusError],
    wait: str | None,
) -> None:
    shape = SHAPES[name]
    with sdk_of(shell) as sdk, pytest.raises(kind) as caught:
        final_of(sdk, sending(*shape.events()))
    assert [caught.value.code, caught.value.status_code] == shape.fails[:2]
    assert caught.value.response.headers.get("Retry-After") == wait
    record = the_record(database, person)
    assert (record.end, record.input_tokens, record.output_tokens) == ("provider_failed", 0, 0)
    assert_nothing_is_reserved(database, person)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("any/done-without-a-finish", "provider_error"),
        ("openai/context-in-the-middle", "context_length_exceeded"),
        ("openrouter/error-in-the-middle", "provider_unavailable"),
        ("vllm/error-in-the-middle", "provider_error"),
    ],
)
def test_a_later_error_ends_the_stream_with_one_that_the_sdk_raises(
    shell: Shell, database: Database, person: Person, name: str, code: str
) -> None:
    shape = SHAPES[name]
    with sdk_of(shell) as sdk, pytest.raises(openai.APIError) as caught:
        final_of(sdk, sending(*shape.events()))
    assert caught.value.code == code
    if words := shape.fails[2]:
        assert words in caught.value.message
    record = the_record(database, person)
    assert (record.end, record.source, record.output_tokens) == ("provider_failed", "counted", 1)
    assert_nothing_is_reserved(database, person)


@pytest.fixture(scope="module")
def anthropic() -> Iterator[MessagesServer]:
    with messages_server(message(), api_key=os.environ["LLM_API_KEY"]) as server:
        server.events = 0
        yield server


@pytest.fixture(scope="module")
def translating(ground: Ground, anthropic: MessagesServer) -> Iterator[Service]:
    environ = {"LLM_PROVIDER": "anthropic", "LLM_BASE_URL": anthropic.base_url}
    with running_service(ground.folder, {**ground.environ, **environ}) as service:
        yield service
        assert service.errors() == []


@pytest.mark.parametrize("name", TRANSLATED)
def test_a_caller_of_anthropics_hears_the_same(
    translating: Service,
    anthropic: MessagesServer,
    sign_in: SignIn,
    database: Database,
    person: Person,
    name: str,
) -> None:
    shape = SHAPES[f"anthropic/{name}"]
    anthropic.extra = [json.loads(each.partition(b"data: ")[2]) for each in shape.events()]
    with sdk_of(sign_in(translating, person)) as sdk:
        # An estimate of this prompt has room for what is reported for it, and is not ten times as much.
        final = final_of(sdk, "How is the tide? " * 12)
    assert_heard_and_metered(shape, final, database, person)


def test_an_overloaded_provider_is_an_http_error_that_sdks_ask_again(
    translating: Service, anthropic: MessagesServer, sign_in: SignIn, database: Database, person: Person
) -> None:  # fmt: skip
    shape = SHAPES["anthropic/overloaded-first"]
    anthropic.extra = [json.loads(each.partition(b"data: ")[2]) for each in shape.events()]
    sdk = sdk_of(sign_in(translating, person))
    with sdk, pytest.raises(openai.InternalServerError) as caught:
        final_of(sdk, "Hello")
    assert (caught.value.code, caught.value.status_code) == ("provider_unavailable", 503)
    assert the_record(database, person).input_tokens == 0
