"""OpenAI's own Python SDK on the Responses API and on embeddings."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.served.conftest import SignIn
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of, the_record
from tests.served.people import Person, add_person
from tests.served.service import Service
from tests.served.shell import Shell, stand_in
from tests.served.test_openai_sdk import Sdk
from tests.standins.provider_process import Provider
from tests.waiting import eventually

MODEL, EMBEDDING = "stand-in-small", "stand-in-embedding"
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": None,
}


@pytest.fixture
def sdk(shell: Shell) -> Iterator[Sdk]:
    with Sdk(shell) as sdk:
        yield sdk


def respond(sdk: Sdk, text: Any = "Hello", **options: Any) -> Any:
    return sdk.responses.create(**{"model": MODEL, "input": text, **options})


def test_the_sdk_gets_a_response(
    sdk: Sdk, database: Database, person: Person, provider: Provider
) -> None:
    response = respond(sdk, "What is a haiku?", instructions="Be brief.", metadata={"a": "b"})
    assert "haiku" in response.output_text
    assert (response.status, response.model) == ("completed", MODEL)
    record = the_record(database, person)
    assert (record.input_tokens, record.output_tokens, record.source) == (
        response.usage.input_tokens,
        response.usage.output_tokens,
        "provider",
    )
    sent = provider.last()["body"]
    assert (sent["store"], sent["max_output_tokens"]) == (False, 4096)
    assert "metadata" not in sent


def test_the_sdk_counts_an_input_without_a_request_to_the_provider(
    sdk: Sdk, database: Database, person: Person, provider: Provider
) -> None:
    told = {"input": "What is a haiku?", "instructions": "Be brief.", "tools": [WEATHER]}
    counted = sdk.responses.input_tokens.count(model=MODEL, **told)
    assert counted.object == "response.input_tokens"
    assert records_of(database, person) == []
    respond(sdk, **{"text": told.pop("input"), **told})
    assert counted.input_tokens == the_record(database, person).reserved_input


def test_the_sdk_streams_a_response(sdk: Sdk, database: Database, person: Person) -> None:
    with respond(sdk, "Count.", stream=True) as stream:
        events = list(stream)
    assert [each.sequence_number for each in events] == list(range(len(events)))
    *_, last = events
    assert last.type == "response.completed"
    text = "".join(each.delta for each in events if each.type == "response.output_text.delta")
    assert text == last.response.output_text
    record = the_record(database, person)
    assert (record.end, record.source) == ("done", "provider")
    assert last.response.usage.output_tokens == record.output_tokens


def test_its_helper_puts_a_stream_together(sdk: Sdk) -> None:
    with sdk.responses.stream(model=MODEL, input="Good morning") as stream:
        kinds = {event.type for event in stream}
        response = stream.get_final_response()
    assert {"response.created", "response.output_text.delta", "response.completed"} <= kinds
    assert "Good morning" in response.output_text


class Place(BaseModel):
    city: str


def test_the_sdk_parses_an_answer_by_a_schema(sdk: Sdk) -> None:
    response = sdk.responses.parse(model=MODEL, input="Kiel", text_format=Place)
    assert response.output_parsed == Place(city="Kiel")


@pytest.mark.parametrize("streamed", [False, True])
def test_the_sdk_calls_a_tool_and_returns_its_output(sdk: Sdk, streamed: bool) -> None:
    conversation: list[Any] = [{"role": "user", "content": "How is the weather in Kiel?"}]
    asked: Any = {"model": MODEL, "tools": [WEATHER], "store": False}
    if streamed:
        with sdk.responses.stream(input=conversation, **asked) as stream:
            first = stream.get_final_response()
    else:
        first = sdk.responses.create(input=conversation, **asked)
    (call,) = first.output
    assert (call.type, call.name) == ("function_call", "weather")
    assert "Kiel" in json.loads(call.arguments)["city"]
    # The model's output goes back as it came, with every member that the SDK puts into it.
    result = {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": "It is raining.",
    }
    second = sdk.responses.create(input=[*conversation, *first.output, result], **asked)
    assert "It is raining." in second.output_text
    third = [*conversation, *second.output, {"role": "user", "content": "Thanks"}]
    answer = sdk.responses.create(model=MODEL, input=third)
    assert "Thanks" in answer.output_text


def test_tools_of_openais_that_it_runs_pass(sdk: Sdk) -> None:
    tools: list[Any] = [
        {"type": "apply_patch"},
        {"type": "local_shell"},
        {"type": "shell", "environment": {"type": "local"}},
    ]
    operation = {"type": "delete_file", "path": "a.txt"}
    call = {"type": "apply_patch_call", "call_id": "c1", "status": "completed"}
    given: list[Any] = [
        {"type": None, "role": "user", "content": "Remove a.txt"},
        {**call, "operation": operation},
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed", "output": None},
    ]
    choice: Any = {"type": "apply_patch"}
    response = sdk.responses.create(model=MODEL, input=given, tools=tools, tool_choice=choice)
    assert response.output_text


def test_the_sdk_calls_a_custom_tool(sdk: Sdk) -> None:
    tool: Any = {"type": "custom", "name": "shell", "description": "Runs a command."}
    with sdk.responses.stream(model=MODEL, input="ls -l", tools=[tool]) as stream:
        (call,) = stream.get_final_response().output
    assert (call.type, call.name, call.input) == ("custom_tool_call", "shell", "ls -l")


@pytest.mark.parametrize(
    ("members", "param", "words"),
    [
        ({"store": True}, "store", "store: false"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "store: false"),
        ({"conversation": "conv_1"}, "conversation", "no state"),
        ({"background": True}, "background", "no state"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]", "store: false"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "hosted tools cost more"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "instructions themselves"),
        ({"max_output_tokens": 15}, "max_output_tokens", "minimum"),
    ],
)
def test_a_member_that_wants_state_or_costs_more_than_tokens_is_refused(
    sdk: Sdk, members: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as refused:
        respond(sdk, **members)
    assert refused.value.param == param


def test_a_response_that_reaches_its_limit_is_incomplete(sdk: Sdk) -> None:
    with respond(sdk, stand_in("tokens=50"), max_output_tokens=16, stream=True) as stream:
        *_, last = stream
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details.reason == "max_output_tokens"
    assert last.response.usage.output_tokens == 16


def test_a_response_that_it_leaves_early_is_counted_and_not_left_open(
    sdk: Sdk, database: Database, provider: Provider, person: Person
) -> None:
    with respond(sdk, stand_in("tokens=10000 delay=0.02"), stream=True) as stream:
        for number, _ in enumerate(stream):
            if number == 12:
                break
    provider.wait_for(lambda stats: stats["requests_open"] == 0)
    eventually(lambda: the_record(database, person).end == "client_gone")
    assert 5 <= the_record(database, person).output_tokens < 4096
    assert_nothing_is_reserved(database, person)


@pytest.mark.parametrize("fault", ["reset", "error", "malformed", "truncate"])
def test_a_failure_in_the_middle_is_an_error_and_not_an_end(sdk: Sdk, fault: str) -> None:
    with (
        pytest.raises(openai.APIError) as failed,
        respond(sdk, stand_in(f"tokens=20 fault={fault} after=5"), stream=True) as stream,
    ):
        list(stream)
    assert failed.value.code == "provider_error"


def test_a_failure_before_the_first_byte_is_an_http_error(sdk: Sdk) -> None:
    with pytest.raises(openai.InternalServerError):
        respond(sdk, stand_in("fault=status:500"), stream=True)


@pytest.mark.parametrize("given", ["A text", ["One", "Two"], [1, 2, 3], [[1, 2], [3]]])
def test_the_sdk_gets_embeddings(sdk: Sdk, database: Database, person: Person, given: Any) -> None:
    # It asks for base64 by itself.
    made = sdk.embeddings.create(model=EMBEDDING, input=given, dimensions=4, user="someone")
    plain = sdk.embeddings.create(
        model=EMBEDDING, input=given, dimensions=4, encoding_format="float"
    )
    assert [each.embedding for each in made.data] == [each.embedding for each in plain.data]
    assert len(made.data) == (2 if isinstance(given[0], list) or given == ["One", "Two"] else 1)
    assert {len(each.embedding) for each in made.data} == {4}
    for record in records_of(database, person):
        assert (record.end, record.source) == ("done", "provider")
        assert (record.input_tokens, record.output_tokens) == (made.usage.prompt_tokens, 0)


def test_embeddings_need_no_output_that_is_left(
    service: Service, database: Database, sign_in: SignIn
) -> None:
    capped = add_person(database, {"monthly_input": 10_000, "monthly_output": 16, "daily": 20_000})
    shell = sign_in(service, capped)
    assert shell.complete(stand_in("tokens=16")).status_code == 200
    with Sdk(shell) as sdk:
        with pytest.raises(openai.RateLimitError):
            respond(sdk)
        assert sdk.embeddings.create(model=EMBEDDING, input="A text").data


def test_a_model_answers_on_its_own_surfaces(sdk: Sdk) -> None:
    with pytest.raises(openai.NotFoundError, match="embeddings"):
        respond(sdk, model=EMBEDDING)
    with pytest.raises(openai.NotFoundError, match="chat, responses"):
        sdk.embeddings.create(model=MODEL, input="A text")
