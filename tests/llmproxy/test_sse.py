"""The parser of server-sent events: what an event is, however the stream is cut."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmproxy.dialects.sse import Event, EventParser, EventTooLarge
from tests.effort import takes_at_most

# Pieces of streams in which line ends, fields and characters of several bytes meet in every way.
FRAGMENTS = st.sampled_from(
    [
        *(b"\n", b"\r", b"\r\n", b"data:", b"data: ", b"data", b"event: ", b": ", b"id: 1", b"x"),
        *(b":", b" ", b"{}", "ä😀".encode(), b"\xef", b"\xbb", b"\xbf", b"\xef\xbb\xbf"),
    ]
)
STREAMS = st.lists(FRAGMENTS, max_size=40).map(b"".join)


def parsed(pieces: Iterable[bytes], *, max_event_bytes: int = 1000) -> list[Event | str]:
    """The events of a stream; the last item is True if it was given up as too large."""
    parser = EventParser(max_event_bytes=max_event_bytes)
    events: list[Event | str] = []
    try:
        for piece in pieces:
            events += parser.feed(piece)
        events += parser.finish()
    except EventTooLarge:
        return [*events, "too large"]
    return [*events, "end"]


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    bounds = [0, *sorted(place for place in places if place <= len(stream)), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(bounds)]


def model(stream: bytes) -> list[tuple[bytes | None, str | None]]:
    """Data and names of a stream's events, told line by line from the whole of it."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[tuple[bytes | None, str | None]] = []
    block: list[bytes] = []
    *lines, rest = text.split(b"\n")
    for line in lines:
        block.append(line)
        if not line:
            events.append(dispatched(block))
            block = []
    if block or rest or (stream.startswith(b"\xef\xbb\xbf") and not text):
        events.append(dispatched([*block, rest]))
    return events


def dispatched(block: list[bytes]) -> tuple[bytes | None, str | None]:
    data, name = [], None
    for line in block:
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if field == b"data":
            data.append(value)
        if field == b"event":
            name = value.decode(errors="replace") or None
    joined = b"\n".join(data)
    return (joined if joined.strip() else None), name


@given(STREAMS, st.lists(st.integers(0, 120)))
@example(b"data: a\r\n\r\ndata: b\r\r\n", [8, 9, 10])
@example(b"\xef\xbb\xbf\r\n\r\n", [1, 2, 4])
@example(b"\xef\xbb\xbf", [])
def test_any_way_of_cutting_a_stream_yields_the_same_events(
    stream: bytes, places: list[int]
) -> None:
    whole = parsed([stream])
    assert parsed(cut(stream, places)) == whole
    assert parsed(cut(stream, range(len(stream)))) == whole


@given(STREAMS, st.lists(st.integers(0, 120)), st.integers(0, 30))
def test_any_way_of_cutting_a_stream_meets_the_limit_at_the_same_event(
    stream: bytes, places: list[int], limit: int
) -> None:
    whole = parsed([stream], max_event_bytes=limit)
    assert parsed(cut(stream, places), max_event_bytes=limit) == whole
    assert all(len(event.raw) <= limit for event in whole if isinstance(event, Event))


@given(STREAMS)
def test_the_raw_blocks_together_are_the_stream(stream: bytes) -> None:
    *events, end = parsed([stream])
    assert b"".join(event.raw for event in events if isinstance(event, Event)) == stream
    assert end == "end"


@given(STREAMS)
def test_events_match_a_line_by_line_model(stream: bytes) -> None:
    events = [(e.data, e.event) for e in parsed([stream]) if isinstance(e, Event)]
    assert events == model(stream)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_an_event_is_returned_with_the_last_byte_of_its_blank_line(end: bytes) -> None:
    parser = EventParser()
    raw = b'data: {"a": 1}' + end + end
    assert parser.feed(raw[:-1]) == []
    assert parser.feed(raw[-1:]) == [Event(raw, b'{"a": 1}', None)]
    assert parser.finish() == []


def test_a_lone_carriage_return_waits_for_the_next_byte() -> None:
    parser = EventParser()
    assert parser.feed(b"data: a\r\r") == []
    assert parser.feed(b"data: b\r\r") == [Event(b"data: a\r\r", b"a", None)]
    assert parser.finish() == [Event(b"data: b\r\r", b"b", None)]


def test_a_line_feed_after_the_held_carriage_return_belongs_to_the_event() -> None:
    parser = EventParser()
    assert parser.feed(b"data: a\r\n\r") == []
    assert parser.feed(b"\ndata: b\n\n") == [
        Event(b"data: a\r\n\r\n", b"a", None),
        Event(b"data: b\n\n", b"b", None),
    ]


def test_several_data_lines_are_joined_and_only_one_space_is_dropped() -> None:
    assert parsed([b"data:a\r\ndata:  b\ndata\ndata: c\r\n\n"])[:-1] == [
        Event(b"data:a\r\ndata:  b\ndata\ndata: c\r\n\n", b"a\n b\n\nc", None)
    ]


def test_event_names_are_kept_and_other_fields_are_ignored() -> None:
    raw = b": note\nid: 7\nretry: 10\nevent: message_delta\ndatax: no\ndata: {}\n\n"
    assert parsed([raw])[:-1] == [Event(raw, b"{}", "message_delta")]


def test_a_comment_is_kept_unchanged_and_has_no_data() -> None:
    assert parsed([b": keep-alive\n\n"])[:-1] == [Event(b": keep-alive\n\n", None, None)]


@pytest.mark.parametrize(
    "blank", [b"data:", b"data: ", b"data", b"event: ping\ndata:", b"data:\ndata: \t"]
)
def test_an_event_with_blank_data_is_none(blank: bytes) -> None:
    stream = blank + b"\n\n: x\n\ndata: 1\n\n"
    assert [e.data for e in parsed([stream]) if isinstance(e, Event)] == [None, None, b"1"]
    assert [e.data for e in parsed([blank + b"\n\n"]) if isinstance(e, Event)] == [None]


def test_blank_lines_between_events_are_kept_as_blocks_without_data() -> None:
    assert parsed([b"\ndata: a\n\n\r\ndata: b\n\n"])[:-1] == [
        Event(b"\n", None, None),
        Event(b"data: a\n\n", b"a", None),
        Event(b"\r\n", None, None),
        Event(b"data: b\n\n", b"b", None),
    ]


def test_a_byte_order_mark_is_ignored_at_the_start_only() -> None:
    assert parsed([b"\xef\xbb", b"\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n"])[:-1] == [
        Event(b"\xef\xbb\xbfdata: a\n\n", b"a", None),
        Event(b"\xef\xbb\xbfdata: b\n\n", None, None),
    ]


def test_a_character_cut_in_two_arrives_whole() -> None:
    stream = 'data: "süß 😀"\n\n'.encode()
    assert parsed(cut(stream, range(len(stream))))[:-1] == [
        Event(stream, '"süß 😀"'.encode(), None)
    ]


def test_bytes_that_are_no_utf_8_do_not_stop_the_stream() -> None:
    assert parsed([b"event: \xff\ndata: \xff\n\n"])[:-1] == [
        Event(b"event: \xff\ndata: \xff\n\n", b"\xff", "�")
    ]


def test_the_last_event_needs_no_blank_line() -> None:
    parser = EventParser()
    assert parser.feed(b"data: a\n\ndata: [DO") == [Event(b"data: a\n\n", b"a", None)]
    assert parser.feed(b"NE]") == []
    assert parser.finish() == [Event(b"data: [DONE]", b"[DONE]", None)]
    assert parser.finish() == []


def test_an_event_longer_than_the_limit_is_refused_before_it_is_whole() -> None:
    parser = EventParser(max_event_bytes=100)
    with pytest.raises(EventTooLarge):
        parser.feed(b"data: " + b"x" * 100)
    with pytest.raises(EventTooLarge):
        parser.feed(b"\n\ndata: a\n\n")
    with pytest.raises(EventTooLarge):
        parser.finish()


def test_events_before_the_one_that_is_too_long_are_still_returned() -> None:
    parser = EventParser(max_event_bytes=100)
    assert parser.feed(b"data: a\n\ndata: " + b"x" * 100) == [Event(b"data: a\n\n", b"a", None)]
    with pytest.raises(EventTooLarge):
        parser.feed(b"x")


def test_many_events_in_one_piece_may_exceed_the_limit_together() -> None:
    raw = b"data: " + b"x" * 80 + b"\n\n"
    assert len(parsed([raw * 50], max_event_bytes=100)) == 51


def test_an_event_of_four_mebibytes_is_taken() -> None:
    raw = b"data: " + b"x" * (4 * 1024 * 1024 - 8) + b"\n\n"
    parser = EventParser()
    assert [len(event.raw) for event in parser.feed(raw)] == [4 * 1024 * 1024]


def test_an_event_in_single_bytes_is_not_searched_again_from_its_start() -> None:
    # Looking at everything again at each byte would take minutes.
    raw = b"data: " + b"x" * 600_000 + b"\n\n"

    def parse() -> None:
        parser = EventParser()
        events = [event for i in range(len(raw)) for event in parser.feed(raw[i : i + 1])]
        assert [event.raw for event in events] == [raw]

    assert takes_at_most(500, parse)
