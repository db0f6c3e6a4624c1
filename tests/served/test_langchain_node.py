"""LangChain for Node, pointed at the service as it is (`tests/wire/langchain.mjs`)."""

from collections.abc import Iterator

import pytest

from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of
from tests.served.node import Say, running_script
from tests.served.people import Person
from tests.served.shell import Shell, stand_in

pytestmark = pytest.mark.wire

BOTH = pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])


@pytest.fixture
def say(shell: Shell) -> Iterator[Say]:
    with running_script("langchain.mjs", shell.base_url, shell.access) as say:
        yield say


@BOTH
def test_langchain_gets_an_answer_and_a_stream_with_the_same_text(
    say: Say, database: Database, person: Person, *, responses: bool
) -> None:
    whole = say(do="whole", text="What is a haiku?", responses=responses)
    streamed = say(do="stream", text="What is a haiku?", responses=responses)
    assert "haiku" in whole["text"] == streamed["text"]
    for record, answer in zip(records_of(database, person), (whole, streamed), strict=True):
        assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (
            record.input_tokens,
            record.output_tokens,
        )
    assert_nothing_is_reserved(database, person)


@BOTH
def test_langchain_calls_a_tool_and_makes_an_object(say: Say, *, responses: bool) -> None:
    answer = say(do="tools", text="How is the weather in Kiel?", responses=responses)
    assert "It is raining." in answer["text"], answer
    assert say(do="structured", text="Kiel", responses=responses)["object"] == {"city": "Kiel"}


@BOTH
def test_a_failure_is_an_error_with_its_sentence(say: Say, *, responses: bool) -> None:
    for what, fault in (("whole", "fault=status:400"), ("stream", "tokens=9 fault=reset after=5")):
        answer = say(do=what, text=stand_in(fault), responses=responses)
        assert "error" in answer, answer


def test_langchain_gets_embeddings(say: Say) -> None:
    (vector,) = say(do="embed", text="A text")["vectors"]
    assert len(vector) == 4
