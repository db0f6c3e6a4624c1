"""Every odd answer, on every surface that its API serves: what SDKs and a strict caller read, and what is metered."""

import json

import openai
import pytest

from llmproxy.requests.call_request import Surface
from tests.llmproxy.odd import relaying, sdks
from tests.llmproxy.odd.listening import heard_of_whole, listen
from tests.llmproxy.odd.rows import Row, cases, named
from tests.pairing import each_once

KINDS = {
    "as documented",
    "events without data",
    "parts without their empty value",
    "calls of tools without an index",
    "an end that forgets its content",
    "raw control characters",
    "another form of choice",
    "an answer in another form",
    "an end without its word",
    "cut on the way",
    "an answer in the other form",
}


@pytest.mark.parametrize(
    ("called", "row", "surface"), each_once([None, "house"], cases("events")), ids=named
)
def test_a_stream_is_read_and_metered(row: Row, surface: Surface, called: str | None) -> None:
    told = relaying.streamed(row, surface, row.events(), called=called)
    listener = listen(surface, told.body)
    if row.fails:
        assert told.failed is not None
        assert (told.failed.code, listener.has_failed, listener.is_whole) == (
            row.fails,
            True,
            False,
        )
        return
    assert (told.failed, told.reported) == (None, row.metered)
    assert (listener.heard, listener.has_failed, listener.is_whole) == (row.heard, False, True)
    assert sdks.heard(surface, told.body, stream=True) == row.heard


@pytest.mark.parametrize(
    ("called", "row", "surface"), each_once([None, "house"], cases("whole")), ids=named
)
def test_a_whole_answer_is_read_and_metered(row: Row, surface: Surface, called: str | None) -> None:
    told = relaying.whole(row, surface, row.whole(), called=called)
    assert told.reported == row.metered
    if row.fails:
        assert told.failed is not None
        assert told.failed.code == row.fails
        return
    assert told.failed is None
    assert heard_of_whole(surface, told.body) == row.heard
    assert called is None or json.loads(told.body)["model"] == called
    wants = row.asked.get("encoding_format", "float")
    assert (
        sdks.heard(
            surface, told.body, stream=False, encoding=wants if wants == "float" else openai.omit
        )
        == row.heard
    )


@pytest.mark.parametrize(("row", "surface"), cases("events"), ids=named)
def test_a_stream_is_read_where_one_piece_was_asked_for(row: Row, surface: Surface) -> None:
    told = relaying.whole(row, surface, b"".join(row.events()), called="house")
    if row.fails:
        assert told.failed is not None
        assert told.failed.code == row.fails
        return
    assert (told.failed, told.reported) == (None, row.metered)
    assert heard_of_whole(surface, told.body) == row.heard
    assert sdks.heard(surface, told.body, stream=False) == row.heard
    assert json.loads(told.body)["model"] == "house"


@pytest.mark.parametrize(
    ("called", "row", "surface"),
    each_once(
        [None, "house"], [case for case in cases("whole") if case[1] is not Surface.EMBEDDINGS]
    ),
    ids=named,
)
def test_an_answer_in_one_piece_is_read_where_a_stream_was_asked_for(
    row: Row, surface: Surface, called: str | None
) -> None:
    told = relaying.streamed(row, surface, [row.whole()], called=called)
    listener = listen(surface, told.body)
    if row.fails:
        assert told.failed is not None
        assert (told.failed.code, listener.is_whole) == (row.fails, False)
        return
    assert (told.failed, told.reported) == (None, row.metered)
    assert (listener.heard, listener.has_failed, listener.is_whole) == (row.heard, False, True)
    assert sdks.heard(surface, told.body, stream=True) == row.heard


def test_embeddings_have_the_form_that_was_asked_for() -> None:
    for row in Row.all():
        if row.api == "embeddings" and not row.fails:
            answer = json.loads(relaying.whole(row, Surface.EMBEDDINGS, row.whole()).body)
            kinds = {type(each["embedding"]) for each in answer["data"]}
            assert kinds == {str if row.asked.get("encoding_format") == "base64" else list}


def test_the_table_has_every_kind_and_names_its_reports() -> None:
    rows = Row.all()
    assert {row.line["kind"] for row in rows} == KINDS
    assert len({row.name for row in rows}) == len(rows)
    reports = {row.line["of"] for row in rows if "of" in row.line}
    assert len(reports) >= 25
    assert all(report.count("/") == report.count("#") == 1 for report in reports)
