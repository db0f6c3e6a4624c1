"""Anthropic's own Python SDK, pointed at the service as it is: an address, and the access token as its key."""

import json
import os
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from licensing.models import Plan
from tests.served.conftest import Ground, SignIn
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of, the_record
from tests.served.node import running_script
from tests.served.people import Person
from tests.served.service import Service, running_service
from tests.served.shell import PATIENCE, Shell
from tests.standins.anthropic_server import (
    COUNTED,
    MODEL,
    MessagesServer,
    message,
    messages_server,
    text,
    thought,
    tool_use,
)

HELLO = message(thought("Hm."), text("Hello, world!"))
WEATHER: Any = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
NAME = "stand-in-small"


@pytest.fixture(scope="module")
def provider() -> Iterator[MessagesServer]:
    with messages_server(HELLO, api_key=os.environ["LLM_API_KEY"]) as server:
        yield server


@pytest.fixture(scope="module")
def service(ground: Ground, provider: MessagesServer) -> Iterator[Service]:
    environ = {"LLM_PROVIDER": "anthropic", "LLM_BASE_URL": provider.base_url}
    with running_service(ground.folder, {**ground.environ, **environ}) as service:
        yield service
        assert service.errors() == []


@pytest.fixture
def shell(service: Service, provider: MessagesServer, person: Person, sign_in: SignIn) -> Shell:
    provider.replies = [HELLO]
    provider.events = None
    provider.extra = []
    provider.counts = True
    provider.bodies.clear()
    return sign_in(service, person)


@pytest.fixture
def sdk(shell: Shell) -> Iterator[anthropic.Anthropic]:
    with sdk_of(shell, api_key=shell.access) as sdk:
        yield sdk


def sdk_of(shell: Shell, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        base_url=f"{shell.base_url}/v1/llm",
        timeout=PATIENCE,
        http_client=anthropic.DefaultHttpxClient(trust_env=False),
        **{"max_retries": 0, **options},
    )


def ask(sdk: anthropic.Anthropic, *turns: Any, **options: Any) -> Any:
    given = {
        "model": NAME,
        "max_tokens": 500,
        "messages": [{"role": "user", "content": "Hello"}, *turns],
    }
    return sdk.messages.create(**{**given, **options})


def test_an_answer_is_charged_as_reported(
    sdk: anthropic.Anthropic, provider: MessagesServer, database: Database, person: Person
) -> None:
    answer = ask(sdk, system="Be brief.", metadata={"user_id": "someone"}, extra_body={"top_k": 5})
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert (answer.content[0].thinking, answer.content[1].text) == ("Hm.", "Hello, world!")
    assert (answer.model, answer.stop_reason) == (MODEL, "end_turn")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (11, 42)
    assert answer.usage.cache_read_input_tokens == 15
    assert answer._request_id
    record = the_record(database, person)
    assert (record.provider, record.end, record.source) == ("default", "done", "provider")
    assert (record.input_tokens, record.cached_input_tokens, record.output_tokens) == (30, 15, 42)
    assert record.cache_write_tokens == 4
    (body,) = provider.bodies
    assert body["system"] == "Be brief."
    assert (body["max_tokens"], body["top_k"]) == (500, 5)
    assert "metadata" not in body
    assert_nothing_is_reserved(database, person)


def test_its_cached_input_counts_by_the_plan(
    sdk: anthropic.Anthropic, shell: Shell, database: Database, person: Person
) -> None:
    with database.rows():
        Plan.objects.filter(licences=person.licence_id).update(cached_input_percent=10)
    assert ask(sdk).usage.cache_read_input_tokens == 15
    # 15 of 30 from the cache, of which two count.
    usage = shell.get("/v1/usage/me").json()
    assert (usage["input"]["used"], usage["day"]["used"]) == (17, 17 + 42)
    assert [each["input"] for each in usage["by_day"]] == [30]
    assert the_record(database, person).capped_input == 17
    assert_nothing_is_reserved(database, person)


def test_a_streams_last_event_has_the_charged_usage(
    sdk: anthropic.Anthropic, database: Database, person: Person
) -> None:
    with sdk.messages.stream(
        model=NAME, max_tokens=500, messages=[{"role": "user", "content": "Hello"}]
    ) as stream:
        assert "".join(stream.text_stream) == "Hello, world!"
        final = stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text"]
    assert (final.usage.input_tokens, final.usage.output_tokens) == (11, 42)
    record = the_record(database, person)
    assert (record.end, record.source) == ("done", "provider")
    assert (record.input_tokens, record.cached_input_tokens, record.output_tokens) == (30, 15, 42)
    assert record.cache_write_tokens == 4


def test_a_tool_and_its_thinking_go_back_as_they_came(
    sdk: anthropic.Anthropic, provider: MessagesServer, database: Database, person: Person
) -> None:
    called = message(thought("Hm."), tool_use("weather", {"city": "Köln"}), stop_reason="tool_use")
    provider.replies = [called, message(text("It rains."))]
    thinking: Any = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}
    with sdk.messages.stream(
        model=NAME,
        messages=[{"role": "user", "content": "Hello"}],
        tools=[WEATHER],
        **thinking,
    ) as stream:
        first = stream.get_final_message()
    call = first.content[-1]
    assert call.type == "tool_use"
    assert call.input == {"city": "Köln"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain", "is_error": False}
    second = ask(
        sdk,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
        tools=[WEATHER],
        **thinking,
    )
    assert second.content[0].text == "It rains."
    back = provider.bodies[-1]["messages"][1]["content"]
    assert back == [
        {key: value for key, value in block.items() if value is not None}
        for block in called["content"]
    ]
    assert len(records_of(database, person)) == 2
    assert_nothing_is_reserved(database, person)


def test_a_tool_that_is_loaded_once_it_is_named_goes_on(
    sdk: anthropic.Anthropic, provider: MessagesServer, database: Database, person: Person
) -> None:
    find: Any = {"name": "find", "input_schema": {"type": "object"}}
    deferred = {**WEATHER, "description": "rain " * 1_000, "defer_loading": True}
    called = message(tool_use("find", {"about": "rain"}), stop_reason="tool_use")
    provider.replies = [called, message(text("It rains."))]
    first = ask(sdk, tools=[find, deferred])
    named = [{"type": "tool_reference", "tool_name": "weather"}]
    found = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": named}
    second = ask(
        sdk,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [found]},
        tools=[find, deferred],
    )
    assert second.content[0].text == "It rains."
    assert [body["tools"] for body in provider.bodies] == [[find, deferred]] * 2
    assert provider.bodies[-1]["messages"][-1]["content"] == [found]
    # Reserved as if it were whole in the prompt, and no more where it is named once.
    before, after = [each.reserved_input for each in records_of(database, person)]
    assert 1_000 < before < after < before + 200
    assert_nothing_is_reserved(database, person)


def test_the_members_of_an_answer_that_it_does_not_know_go_back_too(
    sdk: anthropic.Anthropic, provider: MessagesServer
) -> None:
    said = {**text("Hello, world!"), "mood": {"tone": "calm"}}
    provider.replies = [message(said)]
    first = ask(sdk)
    again: Any = {"role": "user", "content": "Go on"}
    ask(sdk, {"role": "assistant", "content": first.content}, again)
    assert provider.bodies[-1]["messages"][1]["content"] == [said]


def test_instructions_between_the_turns_go_on(
    sdk: anthropic.Anthropic, provider: MessagesServer
) -> None:
    # As Claude Code sends them.
    told = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    assert ask(sdk, told).content[-1].text == "Hello, world!"
    assert provider.bodies[-1]["messages"][1:] == [told]


@anthropic.beta_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


def test_its_loop_of_tools_goes_on_without_the_thread_that_it_asks_for(
    sdk: anthropic.Anthropic, provider: MessagesServer, database: Database, person: Person
) -> None:
    called = message(tool_use("weather", {"city": "Ulm"}), stop_reason="tool_use")
    provider.replies = [called, message(text("Rain."))]
    question: Any = {"role": "user", "content": "Does it rain?"}
    runner = sdk.beta.messages.tool_runner(
        model=NAME, max_tokens=500, messages=[question], tools=[weather]
    )
    assert runner.until_done().content[-1].text == "Rain."  # type: ignore[union-attr]
    assert [each for each in provider.bodies if "thread" in each] == []
    assert "It rains in Ulm." in json.dumps(provider.bodies[-1]["messages"][-1])
    assert len(records_of(database, person)) == 2


def test_its_models_are_those_that_answer_in_messages(
    sdk: anthropic.Anthropic, shell: Shell
) -> None:
    models = list(sdk.models.list())
    # One at a time in both directions.
    assert sdk.models.list(limit=1).has_more is (len(models) > 1)
    assert list(sdk.models.list(limit=1)) == models
    assert list(sdk.models.list(limit=1, before_id="~")) == models[::-1]
    assert [(each.type, each.id) for each in models] == [("model", each.id) for each in models]
    assert NAME in [each.id for each in models]
    model = sdk.models.retrieve(NAME)
    assert (model.id, model.display_name, model.lifecycle) == (NAME, NAME, "active")
    assert model.max_tokens == 4096
    assert model.created_at.tzinfo is not None
    with pytest.raises(anthropic.NotFoundError) as caught:
        sdk.models.retrieve("claude-none")
    assert caught.value.type == "not_found_error"
    # A request without a version is from no SDK of Anthropic's.
    assert shell.get("/v1/llm/v1/models").json() == shell.get("/v1/llm/models").json()
    one = shell.get(f"/v1/llm/v1/models/{NAME}").json()
    assert one == shell.get(f"/v1/llm/models/{NAME}").json()


def test_a_bearer_token_is_as_good_as_the_sdks_own_header(shell: Shell) -> None:
    with sdk_of(shell, auth_token=shell.access) as sdk:
        assert ask(sdk).content[-1].text == "Hello, world!"


def test_only_listed_betas_go_on(sdk: anthropic.Anthropic, provider: MessagesServer) -> None:
    betas = {"anthropic-beta": "context-1m-2025-08-07,interleaved-thinking-2025-05-14"}
    ask(sdk, extra_headers=betas)
    assert provider.betas == ["interleaved-thinking-2025-05-14"]


def test_a_wrong_key_is_an_authentication_error(shell: Shell) -> None:
    with (
        sdk_of(shell, api_key="sk-wrong") as sdk,
        pytest.raises(anthropic.AuthenticationError) as caught,
    ):
        ask(sdk)
    assert (caught.value.type, caught.value.error_code) == (
        "authentication_error",
        "invalid_access_token",
    )
    assert caught.value.request_id


def test_a_member_that_costs_money_outside_tokens_is_refused_by_its_place(
    sdk: anthropic.Anthropic, database: Database, person: Person
) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(sdk, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    body: Any = caught.value.body
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith("tools[0].type: A tool runs at the caller")
    assert [fault["pointer"] for fault in body["errors"]] == ["/tools/0/type"]
    assert caught.value.request_id == body["request_id"]
    assert records_of(database, person) == []


def test_an_unknown_model_is_not_found(sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        ask(sdk, model="claude-none")
    assert caught.value.type == "not_found_error"


def test_a_provider_that_is_overloaded_is_tried_again(
    shell: Shell, provider: MessagesServer
) -> None:
    overloaded: Any = (529, "overloaded_error", "Overloaded", {})
    provider.replies = [*[overloaded] * 3, HELLO]
    with sdk_of(shell, api_key=shell.access, max_retries=2) as sdk:
        assert ask(sdk).content[-1].text == "Hello, world!"


def test_a_stream_that_is_cut_is_an_error_and_costs_what_was_delivered(
    sdk: anthropic.Anthropic, provider: MessagesServer, database: Database, person: Person
) -> None:
    provider.replies = [message(text("x" * 5 * 806))]
    provider.events = 3 + 806
    with ask(sdk, stream=True) as stream, pytest.raises(anthropic.APIStatusError) as caught:
        list(stream)
    assert caught.value.type == "api_error"
    record = the_record(database, person)
    assert (record.end, record.source) == ("provider_failed", "counted")
    assert (record.input_tokens, record.output_tokens) == (30, -(-806 * 5 // 4))


def test_an_error_in_a_stream_is_told_by_its_kind(
    sdk: anthropic.Anthropic, provider: MessagesServer
) -> None:
    provider.events = 3
    error = {"type": "overloaded_error", "message": "Overloaded"}
    provider.extra = [{"type": "error", "error": error}]
    with ask(sdk, stream=True) as stream, pytest.raises(anthropic.APIStatusError) as caught:
        list(stream)
    assert caught.value.type == "overloaded_error"
    assert json.loads(json.dumps(caught.value.body))["code"] == "provider_unavailable"


def test_a_prompt_is_counted_by_the_provider_and_costs_nothing(
    sdk: anthropic.Anthropic, provider: MessagesServer, database: Database, person: Person
) -> None:
    prompt: Any = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}]}
    assert sdk.messages.count_tokens(**prompt, tools=[WEATHER]).input_tokens == COUNTED
    (body,) = provider.bodies
    assert "max_tokens" not in body
    provider.counts = False
    assert 0 < sdk.messages.count_tokens(**prompt).input_tokens < COUNTED
    assert records_of(database, person) == []


def test_a_prompt_that_no_call_could_ask_is_not_counted(sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        sdk.messages.count_tokens(model="none", messages=[{"role": "user", "content": "Hello"}])
    with pytest.raises(anthropic.BadRequestError):
        sdk.messages.count_tokens(model=NAME, messages=[{"role": "assistant", "content": "Hello"}])


@pytest.mark.wire
@pytest.mark.parametrize("key", ["an access token", "a personal key"])
def test_anthropics_sdk_for_node_works_as_it_is(shell: Shell, key: str) -> None:
    if key == "a personal key":
        shell.access = shell.post("/v1/keys", {"name": "Editor"}).json()["key"]
    prompt: Any = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}]}
    call = {**prompt, "max_tokens": 500}
    search = {"type": "web_search_20250305", "name": "web_search"}
    with running_script("anthropic.mjs", shell.base_url, shell.access) as say:
        whole, stream = say(do="whole", ask=call), say(do="stream", ask=call)
        count = say(do="count", ask=prompt)
        refused = say(do="whole", ask={**call, "tools": [search]})
        listed, tools = say(do="models"), say(do="tools", ask=call)
    assert NAME in listed["models"]
    assert tools["message"]["content"][-1]["text"] == "Hello, world!"
    assert whole["message"]["content"][-1]["text"] == "Hello, world!"
    assert stream["text"] == stream["message"]["content"][-1]["text"] == "Hello, world!"
    assert stream["message"]["usage"]["output_tokens"] == 42
    assert count["count"]["input_tokens"] == COUNTED
    assert (refused["error"]["status"], refused["error"]["type"]) == (400, "invalid_request_error")
