"""Variants of every odd answer: read alike however they come, and never told as whole where they were cut.

The seed is printed; ``ODD_SEED=<number>`` makes the same variants again.
"""

import json
import os
from random import Random, SystemRandom
from typing import Any

import pytest

from llmproxy.requests.call_request import Surface
from tests.llmproxy.odd import relaying, sdks, variants
from tests.llmproxy.odd.listening import Listener, heard_of_whole, listen
from tests.llmproxy.odd.relaying import Told
from tests.llmproxy.odd.rows import Row, cases, named

pytestmark = pytest.mark.full

SEED = int(os.environ.get("ODD_SEED") or SystemRandom().randrange(2**32))
# Of each row and kind of variant.
MOST = 60
HEARD_BY_SDKS = 4
STREAMS = [case for case in cases("events") if not case[0].fails]
FAILING = [case for case in cases("events") if case[0].fails]
WHOLE = [case for case in cases("whole") if not case[0].fails]


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> Random:
    print(f"ODD_SEED={SEED}")
    return Random(f"{SEED} {request.node.name}")


def assert_read(row: Row, surface: Surface, parts: list[bytes]) -> Told:
    """Asserts that a caller and the ledger get all of it."""
    told = relaying.streamed(row, surface, parts)
    listener = listen(surface, told.body)
    assert (told.failed, told.reported) == (None, row.metered), parts
    assert (listener.heard, listener.has_failed, listener.is_whole) == (row.heard, False, True), (
        parts
    )
    return told


@pytest.mark.parametrize(("row", "surface"), STREAMS, ids=named)
def test_line_ends_and_cuts_within_change_nothing(
    row: Row, surface: Surface, chance: Random
) -> None:
    for number, parts in enumerate(variants.splits(row.events(), chance, most=MOST)):
        told = assert_read(row, surface, parts)
        if number < HEARD_BY_SDKS:
            assert sdks.heard(surface, told.body, stream=True) == row.heard


@pytest.mark.parametrize(("row", "surface"), STREAMS, ids=named)
def test_bytes_between_events_change_nothing(row: Row, surface: Surface, chance: Random) -> None:
    for number, parts in enumerate(variants.interrupted(row.events(), chance, most=MOST)):
        told = assert_read(row, surface, parts)
        if number % len(variants.BETWEEN) == 1:
            assert sdks.heard(surface, told.body, stream=True) == row.heard


@pytest.mark.parametrize(("row", "surface"), STREAMS, ids=named)
def test_a_cut_answer_is_never_reported_as_whole(row: Row, surface: Surface) -> None:
    events = row.events()
    for count in range(len(events)):
        for more in (b"", events[count][: len(events[count]) // 2], b": keep-alive\n\n"):
            told = relaying.streamed(row, surface, [*events[:count], more])
            assert_told_as_it_is(row, surface, told)


@pytest.mark.parametrize(("row", "surface"), FAILING, ids=named)
def test_a_failure_is_one_however_it_comes(row: Row, surface: Surface, chance: Random) -> None:
    for make in (variants.splits, variants.interrupted):
        for parts in make(row.events(), chance, most=MOST):
            told = relaying.streamed(row, surface, parts)
            assert told.failed is not None
            assert told.failed.code == row.fails
            assert_told_as_it_is(row, surface, told)


def assert_told_as_it_is(row: Row, surface: Surface, told: Told) -> None:
    """Asserts that an answer is told as whole where it is, and that another one ends in a failure."""
    listener = listen(surface, told.body)
    assert listener.is_whole == (told.failed is None) == told.finished
    assert listener.has_failed == (told.failed is not None)
    assert row.heard.text.startswith(listener.heard.text) or row.fails
    if listener.is_whole:
        assert said(listener) == said_in(row)


def said(listener: Listener) -> Any:
    return (listener.heard.text, listener.heard.thought, listener.heard.calls)


def said_in(row: Row) -> Any:
    return (row.heard.text, row.heard.thought, row.heard.calls)


@pytest.mark.parametrize(("row", "surface"), STREAMS, ids=named)
def test_an_optional_member_may_be_absent_null_or_repeated(
    row: Row, surface: Surface, chance: Random
) -> None:
    given = row.line["events"]
    datas = [each if isinstance(each, dict) else None for each in given]
    found = [*variants.members(row, datas)]
    for member in found if len(found) <= MOST * 5 else chance.sample(found, MOST * 5):
        events = row.events()
        data = datas[member.event]
        events[member.event] = events[member.event].partition(b"data: ")[0] + (
            b"data: " + variants.written(data, member) + b"\n\n"
        )
        assert_read(row, surface, events)


@pytest.mark.parametrize(("row", "surface"), WHOLE, ids=named)
def test_an_optional_member_of_a_whole_answer_may_be_too(row: Row, surface: Surface) -> None:
    if isinstance(row.line["whole"], str):
        return
    for member in variants.members(row, [row.line["whole"]]):
        body = variants.written(row.line["whole"], member)
        told = relaying.whole(row, surface, body)
        assert (told.failed, told.reported) == (None, row.metered), member
        assert heard_of_whole(surface, told.body) == row.heard, member


def test_the_variants_are_many() -> None:
    """A count that says what a run of this has tried."""
    print(f"ODD_SEED={SEED}")
    counts = dict.fromkeys(("splits", "between", "cuts", "members"), 0)
    for row, _ in STREAMS:
        chance, events = Random(SEED), row.events()
        counts["splits"] += len([*variants.splits(events, chance, most=MOST)])
        counts["between"] += len([*variants.interrupted(events, chance, most=MOST)])
        counts["cuts"] += 3 * len(events)
        datas = [each if isinstance(each, dict) else None for each in row.line["events"]]
        counts["members"] += min(MOST * 5, len([*variants.members(row, datas)]))
    print(json.dumps(counts))
    assert sum(counts.values()) > 20_000
