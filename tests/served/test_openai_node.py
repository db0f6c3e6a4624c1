"""OpenAI's SDK for Node, pointed at the service as it is (`tests/wire/openai.mjs`)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.served.conftest import SignIn
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of, the_record
from tests.served.node import running_script
from tests.served.people import Person, add_person, suspend
from tests.served.service import Service
from tests.served.shell import Shell, stand_in
from tests.standins.provider_process import Provider

pytestmark = pytest.mark.wire

PATH = "/v1/llm/chat/completions"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
Ask = Callable[..., dict[str, Any]]


@contextmanager
def node(shell: Shell) -> Iterator[Ask]:
    with running_script("openai.mjs", shell.base_url, shell.access) as say:

        def ask(
            what: str, text: str = "Hello", *, retries: int = 0, **members: Any
        ) -> dict[str, Any]:
            messages = [{"role": "user", "content": text}]
            members = {"model": "stand-in-small", "messages": messages, **members}
            return say(do=what, ask=members, retries=retries)

        yield ask


@pytest.fixture
def ask(shell: Shell) -> Iterator[Ask]:
    with node(shell) as ask:
        yield ask


def test_the_sdk_gets_an_answer_and_a_stream_with_the_same_text(ask: Ask) -> None:
    whole, streamed = ask("complete", "What is a haiku?"), ask("stream", "What is a haiku?")
    assert whole["choice"]["finish_reason"] == "stop"
    assert "haiku" in whole["choice"]["message"]["content"]
    assert streamed["text"] == whole["choice"]["message"]["content"]
    assert (streamed["usage"], streamed["empty"]) == (None, 0)


def test_the_sdk_gets_the_requested_usage_of_a_stream(
    ask: Ask, database: Database, person: Person
) -> None:
    streamed = ask("stream", stream_options={"include_usage": True})
    assert streamed["empty"] == 1
    record = the_record(database, person)
    assert (streamed["usage"]["prompt_tokens"], streamed["usage"]["completion_tokens"]) == (
        record.input_tokens,
        record.output_tokens,
    )


def test_its_helpers_put_streams_schemas_and_tools_together(ask: Ask) -> None:
    helped = ask("helper", "Good morning")
    assert "Good morning" in helped["text"] == helped["choice"]["message"]["content"]
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    form = {"name": "place", "strict": True, "schema": {**schema, "additionalProperties": False}}
    parsed = ask("parse", response_format={"type": "json_schema", "json_schema": form})["parsed"]
    assert isinstance(parsed["city"], str)
    # Its runner calls the tool and goes on with the conversation by itself.
    run = ask("tools", "How is the weather?", tools=[WEATHER])
    assert "It is raining." in run["text"]
    assert run["sent"] == [PATH] * 2


def test_the_sdk_lists_the_models(ask: Ask) -> None:
    assert ask("models")["ids"] == ["stand-in-embedding", "stand-in-large", "stand-in-small"]


@pytest.mark.parametrize(
    ("how", "directive"), [("break", "tokens=100000 delay=0.02"), ("abort", "tokens=70 first=8")]
)
def test_a_stream_that_it_leaves_early_is_counted_and_not_left_open(
    ask: Ask, database: Database, provider: Provider, person: Person, how: str, directive: str
) -> None:
    left = ask(how, stand_in(directive))
    assert ("error" in left) == (how == "abort")
    provider.wait_for(lambda stats: stats["requests_open"] == 0)
    record = the_record(database, person)
    assert record.end == "client_gone"
    assert_nothing_is_reserved(database, person)


def test_a_failure_in_the_middle_of_a_stream_is_an_error_and_not_an_end(ask: Ask) -> None:
    error = ask("stream", stand_in("tokens=20 fault=reset after=5"))["error"]
    assert (error["class"], error["code"]) == ("APIError", "provider_error")


@pytest.mark.parametrize(
    ("members", "text", "told", "tries"),
    [
        ({"temperature": 3}, "Hello", ("BadRequestError", "invalid_request"), 1),
        ({"model": "gpt-unknown"}, "Hello", ("NotFoundError", "model_not_found"), 1),
        ({}, stand_in("fault=status:400"), ("BadRequestError", "provider_rejected"), 1),
        ({}, stand_in("fault=status:500"), ("InternalServerError", "provider_error"), 3),
        ({}, stand_in("fault=status:429"), ("InternalServerError", "provider_unavailable"), 3),
    ],
)
@pytest.mark.parametrize("retries", [0, 2])
def test_a_refusal_is_tried_again_only_where_that_may_help(
    ask: Ask, members: dict[str, Any], text: str, told: tuple[str, str], tries: int, retries: int
) -> None:
    answer = ask("complete", text, retries=retries, **members)
    assert (answer["error"]["class"], answer["error"]["code"]) == told
    assert answer["sent"] == [PATH] * min(tries, retries + 1)


@pytest.mark.parametrize("what", ["complete", "stream"])
def test_a_cap_a_suspension_and_a_wrong_token_are_not_tried_again(
    service: Service, database: Database, sign_in: SignIn, what: str
) -> None:
    capped = add_person(database, {"monthly_input": 10_000, "monthly_output": 20, "daily": 20_000})
    shell = sign_in(service, capped)
    assert shell.complete(stand_in("tokens=19")).status_code == 200
    with node(shell) as ask:
        answer = ask(what, stand_in("tokens=19"), retries=2)
    assert (answer["error"]["class"], answer["error"]["code"]) == (
        "RateLimitError",
        "insufficient_quota",
    )
    assert answer["sent"] == [PATH]
    suspended = add_person(database)
    shell = sign_in(service, suspended)
    suspend(database, suspended)
    with node(shell) as ask:
        answer = ask(what, retries=2)
    assert (answer["error"]["class"], answer["error"]["code"]) == (
        "PermissionDeniedError",
        "licence_suspended",
    )
    assert answer["sent"] == [PATH]
    shell.access = "sk-wrong"
    with node(shell) as ask:
        answer = ask(what, retries=2)
    assert (answer["error"]["class"], answer["error"]["code"]) == (
        "AuthenticationError",
        "invalid_access_token",
    )
    assert answer["sent"] == [PATH]
    assert len(records_of(database, capped)) == 1
