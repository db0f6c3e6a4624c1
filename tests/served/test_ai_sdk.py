"""Vercel's AI SDK, pointed at the service as it is (`tests/wire/vercel.mjs`): it asks the Responses API by default."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of
from tests.served.node import Say, running_script
from tests.served.people import Person
from tests.served.shell import Shell, stand_in

pytestmark = pytest.mark.wire

RESPONSES = "/v1/llm/responses"
WEATHER = "How is the weather in Kiel?"


@pytest.fixture
def say(shell: Shell) -> Iterator[Say]:
    with running_script("vercel.mjs", shell.base_url, shell.access) as say:
        yield say


@pytest.fixture
def ask(say: Say) -> Say:
    def asked(what: str, prompt: str = "Hello", **members: Any) -> dict[str, Any]:
        given = {"model": "stand-in-small", "store": False, "ask": {"prompt": prompt}, **members}
        return say(do=what, **given)

    return asked


@pytest.mark.parametrize("store", [False, None])
def test_the_ai_sdk_gets_an_answer_and_a_stream_with_the_same_text(
    ask: Say, database: Database, person: Person, store: bool | None
) -> None:
    whole = ask("whole", "What is a haiku?", store=store)
    streamed = ask("stream", "What is a haiku?", store=store)
    assert "haiku" in whole["text"] == streamed["text"]
    assert whole["sent"] == streamed["sent"] == [RESPONSES]
    for record in records_of(database, person):
        assert (record.end, record.source) == ("done", "provider")
        for answer in (whole, streamed):
            assert answer["usage"]["inputTokens"] == record.input_tokens
            assert answer["usage"]["outputTokens"] == record.output_tokens
    assert_nothing_is_reserved(database, person)


@pytest.mark.parametrize("what", ["tools", "streamed tools"])
def test_the_ai_sdk_calls_a_tool_and_uses_its_result(
    ask: Say, database: Database, person: Person, what: str
) -> None:
    answer = ask(what, WEATHER)
    assert "It is raining." in answer["text"], answer
    assert (answer["steps"], answer["sent"]) == (2, [RESPONSES] * 2)
    assert len(records_of(database, person)) == 2
    assert_nothing_is_reserved(database, person)


def test_a_conversation_goes_on_where_it_does_not_count_on_what_is_stored(ask: Say) -> None:
    answer = ask("talk", WEATHER)
    assert "Thanks" in answer["text"], answer
    refused = ask("talk", WEATHER, store=None)["error"]
    assert refused["status"] == 400
    assert "store: false" in refused["message"]


@pytest.mark.parametrize("what", ["object", "output"])
def test_the_ai_sdk_makes_an_object_by_a_schema(ask: Say, what: str) -> None:
    assert ask(what, "Kiel")["object"] == {"city": "Kiel"}


def test_the_ai_sdk_gets_embeddings(ask: Say, database: Database, person: Person) -> None:
    vectors = {"model": "stand-in-embedding"}
    one = ask("embed", **vectors, ask={"value": "A text"})
    many = ask("embed many", **vectors, ask={"values": ["A text", "Another"]})
    assert one["embedding"] == many["embeddings"][0] != many["embeddings"][1]
    assert one["sent"] == many["sent"] == ["/v1/llm/embeddings"]
    first, second = records_of(database, person)
    assert (one["usage"]["tokens"], many["usage"]["tokens"]) == (
        first.input_tokens,
        second.input_tokens,
    )


def test_the_ai_sdk_reports_the_problem(ask: Say) -> None:
    unknown = ask("whole", model="gpt-unknown")["error"]
    assert (unknown["name"], unknown["status"]) == ("AI_APICallError", 404)
    assert "gpt-unknown" in unknown["message"]


def test_a_failure_in_the_middle_of_a_stream_is_an_error_and_not_an_end(ask: Say) -> None:
    answer = ask("stream", stand_in("tokens=20 fault=reset after=5"))
    assert "error" in answer, answer
