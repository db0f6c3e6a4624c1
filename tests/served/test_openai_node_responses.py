"""OpenAI's SDK for Node on the Responses API, embeddings and single models (`tests/wire/openai.mjs`)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of, the_record
from tests.served.node import running_script
from tests.served.people import Person
from tests.served.shell import Shell, stand_in
from tests.standins.provider_process import Provider

pytestmark = pytest.mark.wire

PATH = "/v1/llm/responses"
EMBEDDING = "stand-in-embedding"
WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(shell: Shell) -> Iterator[Ask]:
    with running_script("openai.mjs", shell.base_url, shell.access) as say:

        def ask(what: str, given: Any = "Hello", **members: Any) -> dict[str, Any]:
            return say(do=what, ask={"model": "stand-in-small", "input": given, **members})

        yield ask


def test_the_sdk_gets_a_response_and_a_stream_with_the_same_text(
    ask: Ask, database: Database, person: Person
) -> None:
    whole = ask("respond", "What is a haiku?", instructions="Be brief.")
    streamed = ask("respond stream", "What is a haiku?", instructions="Be brief.")
    assert "haiku" in whole["text"] == streamed["text"] == streamed["whole"]
    assert whole["status"] == streamed["status"] == "completed"
    assert whole["sent"] == streamed["sent"] == [PATH]
    for record, answer in zip(records_of(database, person), (whole, streamed), strict=True):
        assert (record.end, record.source) == ("done", "provider")
        assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (
            record.input_tokens,
            record.output_tokens,
        )
    assert_nothing_is_reserved(database, person)


def test_the_sdk_parses_an_answer_by_a_schema(ask: Ask) -> None:
    assert ask("respond parse", "Kiel")["parsed"] == {"city": "Kiel"}


@pytest.mark.parametrize("streamed", [False, True])
def test_the_sdk_calls_a_tool_and_returns_its_output(ask: Ask, *, streamed: bool) -> None:
    answer = ask("respond tools", "How is the weather?", tools=[WEATHER], stream=streamed)
    (call,) = answer["calls"]
    assert (call["type"], call["name"]) == ("function_call", "weather")
    assert "It is raining." in answer["text"]
    assert answer["sent"] == [PATH] * 2


def test_a_response_that_it_aborts_costs_what_was_delivered(
    ask: Ask, database: Database, provider: Provider, person: Person
) -> None:
    left = ask("respond abort", stand_in("tokens=100000 delay=0.02"), max_output_tokens=4000)
    assert len(left["text"]) > 100
    provider.wait_for(lambda stats: stats["requests_open"] == 0)
    record = the_record(database, person)
    assert record.end == "client_gone"
    # A token of the stand-in has eight characters at most, and the white space before them.
    assert len(left["text"]) / 9 < record.output_tokens < 4000
    assert_nothing_is_reserved(database, person)


@pytest.mark.parametrize(
    ("what", "text", "members", "told"),
    [
        ("respond", "Hello", {"model": "none"}, ("NotFoundError", "model_not_found", "model")),
        (
            "respond stream",
            "Hello",
            {"store": True},
            ("BadRequestError", "invalid_request", "store"),
        ),
        (
            "respond",
            stand_in("fault=status:500"),
            {},
            ("InternalServerError", "provider_error", None),
        ),
        (
            "respond stream",
            stand_in("tokens=20 fault=reset after=5"),
            {},
            ("APIError", "provider_error", None),
        ),
        ("embed", "Hello", {}, ("NotFoundError", "not_found", "model")),
        ("model", "Hello", {"model": "none"}, ("NotFoundError", "model_not_found", "model")),
    ],
)
def test_a_failure_is_an_error_of_its_class(
    ask: Ask, what: str, text: str, members: dict[str, Any], told: tuple[str, str, str | None]
) -> None:
    error = ask(what, text, **members)["error"]
    assert (error["class"], error["code"], error["param"]) == told


def test_the_sdk_gets_embeddings(ask: Ask, database: Database, person: Person) -> None:
    # It asks for base64 by itself.
    made = ask("embed", ["One", "Two"], model=EMBEDDING, dimensions=4)
    plain = ask("embed", ["One", "Two"], model=EMBEDDING, dimensions=4, encoding_format="float")
    assert made["vectors"] == plain["vectors"]
    assert [len(vector) for vector in made["vectors"]] == [4, 4]
    for record in records_of(database, person):
        assert (record.end, record.input_tokens) == ("done", made["usage"]["prompt_tokens"])


def test_the_sdk_retrieves_a_model(ask: Ask) -> None:
    model = ask("model", model=EMBEDDING)["model"]
    assert (model["id"], model["object"], model["surfaces"]) == (EMBEDDING, "model", ["embeddings"])
