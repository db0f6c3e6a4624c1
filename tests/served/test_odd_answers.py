"""Odd answers of providers, through the service as it is run: what OpenAI's SDK for Node reads, and the ledger."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.llmproxy.odd.rows import SURFACES, Row, named
from tests.llmproxy.odd.test_node import expected, heard_of_answer
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, the_record
from tests.served.node import Say, running_script
from tests.served.people import Person
from tests.served.shell import Shell, sending

pytestmark = pytest.mark.wire

MODELS = {
    "chat": "stand-in-small",
    "responses": "stand-in-small",
    "embeddings": "stand-in-embedding",
}


def sample() -> list[Row]:
    """A row of each kind and API that the stand-in has."""
    rows = [row for row in Row.all() if row.api in MODELS and not row.fails]
    return [*{(row.line["kind"], row.api): row for row in rows}.values()]


@pytest.fixture
def say(shell: Shell) -> Iterator[Say]:
    with running_script("openai.mjs", shell.base_url, shell.access) as say:
        yield say


@pytest.mark.parametrize("row", sample(), ids=named)
def test_every_odd_answer_is_read_and_metered(
    say: Say, database: Database, person: Person, row: Row
) -> None:
    (surface,) = SURFACES[row.api]
    is_streamed = "events" in row.line
    said = sending(*(row.events() if is_streamed else [row.whole()]))
    given: dict[str, Any] = {"model": MODELS[row.api], **row.asked}
    if row.asked.get("encoding_format") == "base64":
        # It asks for it by itself, and reads numbers only then.
        del given["encoding_format"]
    given |= (
        {"messages": [{"role": "user", "content": said}]}
        if row.api == "chat"
        # The rows have two vectors.
        else {"input": [said, "a"] if row.api == "embeddings" else said}
    )
    answer = heard_of_answer(say, surface, given, stream=is_streamed)
    assert answer == expected(row, surface)
    record = the_record(database, person)
    assert row.metered is not None
    assert (record.end, record.source) == ("done", "provider")
    assert (record.input_tokens, record.output_tokens) == (row.metered.input, row.metered.output)
    assert_nothing_is_reserved(database, person)
