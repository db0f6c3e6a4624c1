"""The service as it is run before Anthropic's Messages API, asked by OpenAI's own SDK; all members pass."""

import json
import os
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.served.conftest import Ground, SignIn
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of, the_record
from tests.served.people import Person
from tests.served.service import Service, running_service
from tests.served.shell import PATIENCE
from tests.standins.anthropic_server import (
    MessagesServer,
    message,
    messages_server,
    text,
    thought,
    tool_use,
)

WEATHER: Any = {"type": "function", "function": {"name": "weather"}}
HELLO = message(thought("Hm."), text("Hello, world!"))


@pytest.fixture(scope="module")
def anthropic() -> Iterator[MessagesServer]:
    with messages_server(HELLO, api_key=os.environ["LLM_API_KEY"]) as server:
        yield server


@pytest.fixture(scope="module")
def translating(ground: Ground, anthropic: MessagesServer) -> Iterator[Service]:
    environ = {
        "LLM_PROVIDER": "anthropic",
        "LLM_BASE_URL": anthropic.base_url,
        "LLM_MEMBERS": "all",
    }
    with running_service(ground.folder, {**ground.environ, **environ}) as service:
        yield service
        assert service.errors() == []


@pytest.fixture
def sdk(
    translating: Service, anthropic: MessagesServer, person: Person, sign_in: SignIn
) -> Iterator[openai.OpenAI]:
    anthropic.replies = [HELLO]
    anthropic.events = None
    shell = sign_in(translating, person)
    with openai.OpenAI(
        base_url=f"{translating.url}/v1/llm",
        api_key=shell.access,
        max_retries=0,
        timeout=PATIENCE,
        http_client=openai.DefaultHttpxClient(trust_env=False),
    ) as sdk:
        yield sdk


def ask(sdk: openai.OpenAI, *messages: Any, **options: Any) -> Any:
    given = {
        "model": "stand-in-small",
        "messages": [{"role": "user", "content": "Hello"}, *messages],
    }
    return sdk.chat.completions.create(**given, **options)


def test_an_answer_is_charged_as_reported(
    sdk: openai.OpenAI, database: Database, person: Person
) -> None:
    answer = ask(sdk)
    assert answer.choices[0].message.content == "Hello, world!"
    assert answer.choices[0].message.reasoning_content == "Hm."
    record = the_record(database, person)
    assert (record.provider, record.end, record.source) == ("default", "done", "provider")
    assert (record.input_tokens, record.cached_input_tokens, record.output_tokens) == (30, 15, 42)
    assert record.cache_write_tokens == 4
    assert answer.usage.prompt_tokens_details.cached_tokens == 15
    assert answer.usage.prompt_tokens_details.cache_write_tokens == 4
    assert_nothing_is_reserved(database, person)


def test_a_stream_has_the_requested_usage(
    sdk: openai.OpenAI, database: Database, person: Person
) -> None:
    with ask(sdk, stream=True, stream_options={"include_usage": True}) as stream:
        *chunks, last = stream
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert said == "Hello, world!"
    assert (last.choices, last.usage.total_tokens) == ([], 72)
    record = the_record(database, person)
    assert (record.source, record.input_tokens, record.output_tokens) == ("provider", 30, 42)


def test_an_answer_goes_back_as_it_came(
    sdk: openai.OpenAI, anthropic: MessagesServer, database: Database, person: Person
) -> None:
    called = message(thought("Hm."), tool_use("weather", {}), stop_reason="tool_use")
    anthropic.replies = [called, message(text("It rains."))]
    first = ask(sdk, tools=[WEATHER]).choices[0]
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    second = ask(sdk, first.message, result, tools=[WEATHER])
    assert second.choices[0].message.content == "It rains."
    assert len(records_of(database, person)) == 2
    assert_nothing_is_reserved(database, person)


def test_a_tool_call_and_a_thought_are_put_together_by_the_sdks_own_helper(
    sdk: openai.OpenAI, anthropic: MessagesServer
) -> None:
    arguments = {"city": "Köln"}
    anthropic.replies = [
        message(thought("Hm."), tool_use("weather", arguments), stop_reason="tool_use")
    ]
    with sdk.chat.completions.stream(
        model="stand-in-small", messages=[{"role": "user", "content": "Hello"}], tools=[WEATHER]
    ) as stream:
        (choice,) = stream.get_final_completion().choices
    (call,) = choice.message.tool_calls or ()
    assert json.loads(call.function.arguments) == arguments
    assert choice.finish_reason == "tool_calls"


def test_a_stream_that_is_cut_is_an_error_and_costs_what_was_delivered(
    sdk: openai.OpenAI, anthropic: MessagesServer, database: Database, person: Person
) -> None:
    anthropic.replies = [message(text("x" * 5 * 806))]
    anthropic.events = 3 + 806
    with ask(sdk, stream=True) as stream, pytest.raises(openai.APIError) as caught:
        list(stream)
    assert caught.value.code == "provider_error"
    record = the_record(database, person)
    assert (record.end, record.source) == ("provider_failed", "counted")
    assert (record.input_tokens, record.output_tokens) == (30, -(-806 * 5 // 4))


def test_a_member_that_the_provider_has_nothing_like_is_refused_and_costs_nothing(
    sdk: openai.OpenAI, database: Database, person: Person
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(sdk, logprobs=True)
    assert caught.value.code == "invalid_request"
    assert records_of(database, person) == []


def test_a_member_in_no_list_reaches_a_provider_that_takes_all(
    sdk: openai.OpenAI, anthropic: MessagesServer
) -> None:
    ask(sdk, extra_body={"top_k": 5})
    assert anthropic.bodies[-1]["top_k"] == 5


SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("path", "members"),
    [
        ("/chat/completions", {"tools": [{"type": "web_search"}]}),
        ("/chat/completions", {"web_search_options": {"search_context_size": "low"}}),
        ("/messages", {"tools": [SEARCH], "max_tokens": 50}),
    ],
)
def test_a_hosted_tool_is_refused_also_where_all_members_pass(
    sdk: openai.OpenAI,
    anthropic: MessagesServer,
    database: Database,
    person: Person,
    path: str,
    members: dict[str, Any],
) -> None:
    anthropic.bodies.clear()
    said = {"model": "stand-in-small", "messages": [{"role": "user", "content": "Hello"}]}
    with pytest.raises(openai.BadRequestError):
        sdk.post(path, body={**said, **members}, cast_to=object)
    assert anthropic.bodies == []
    assert records_of(database, person) == []
