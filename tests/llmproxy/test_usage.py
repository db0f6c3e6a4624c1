"""Usage in all vendors' names and sums, on every surface, whole and streamed: read, told and charged to the token.

``usages.ndjson`` has one shape a line: where it is from (its numbers are ours where that is no report), and the tokens:
input, output, of these cached and reasoning, and written to a cache.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmproxy.calls.relay import complete, stream
from llmproxy.dialects.by_name import DIALECTS
from llmproxy.dialects.openai.embeddings import Embeddings
from llmproxy.dialects.protocol import TokenUsage
from llmproxy.dialects.sse import EventParser
from llmproxy.dialects.usage import Report, reported
from llmproxy.requests import messages, responses
from llmproxy.requests.call_request import CallRequest, Surface
from llmproxy.requests.chat import parse
from tests.llmproxy.targets import target
from tests.llmproxy.test_relay import Play, play, plays, read
from usage.models import UsageRecord

__all__ = ["play"]

Json = dict[str, Any]
ROWS: list[Json] = [
    json.loads(line) for line in Path(__file__).with_name("usages.ndjson").read_text().splitlines()
]
IDS = [f"{at}: {row['from']}" for at, row in enumerate(ROWS, 1)]
SAID = [{"role": "user", "content": "hello"}]
SURFACES = {
    "chat": ("openai", Surface.CHAT),
    "chat at Anthropic": ("anthropic", Surface.CHAT),
    "responses": ("openai", Surface.RESPONSES),
    "messages": ("anthropic", Surface.MESSAGES),
}


def asked(surface: str, *, streamed: bool) -> CallRequest:
    _, api = SURFACES[surface]
    if api is Surface.RESPONSES:
        return responses.parse({"input": "hello", "stream": streamed})
    if api is Surface.MESSAGES:
        call = {"messages": SAID, "max_tokens": 9_000, "stream": streamed}
        return messages.parse(call, headers={})
    options = {"stream_options": {"include_usage": True}} if streamed else {}
    return parse({"messages": SAID, "max_tokens": 9_000, **options}, stream=streamed)


def whole(surface: str, usage: Any) -> Json:
    dialect, api = SURFACES[surface]
    blocks = [{"type": "text", "text": "Hi"}]
    if dialect == "anthropic":
        end = {"stop_reason": "end_turn"}
        return {"id": "m", "model": "theirs", "content": blocks, **end, "usage": usage}
    if api is Surface.RESPONSES:
        return {"output": [{"type": "message", "content": blocks}], "usage": usage}
    choice = {"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": usage}


def event(data: Json) -> bytes:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def events(surface: str, *usages: Any, start: Any = None) -> Iterator[bytes]:
    """A stream of one delta, with these usages in turn at its end, and one at its start."""
    dialect, api = SURFACES[surface]
    if dialect == "anthropic":
        begun = {"id": "m", "model": "theirs", "content": [], "usage": start}
        yield event({"type": "message_start", "message": begun})
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi"}
        yield event({"type": "content_block_start", "index": 0, "content_block": block})
        yield event({"type": "content_block_delta", "index": 0, "delta": delta})
        for usage in usages:
            end = {"stop_reason": "end_turn"}
            yield event({"type": "message_delta", "delta": end, "usage": usage})
        yield event({"type": "message_stop"})
    elif api is Surface.RESPONSES:
        response = {"id": "r", "output": []}
        yield event({"type": "response.created", "response": response})
        yield event({"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"})
        (usage,) = usages
        yield event({"type": "response.completed", "response": {**response, "usage": usage}})
    else:
        choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}
        yield event({"choices": [choice], "usage": start})
        yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        for usage in usages:
            yield event({"choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


def last_report(surface: str, *usages: Any, start: Any = None) -> TokenUsage | None:
    """The last report of a stream."""
    dialect, api = SURFACES[surface]
    codec = DIALECTS[dialect].codecs[api]
    call = asked(surface, streamed=True)
    translator = codec.translator(call, target=target(dialect), called=None)
    given = EventParser().feed(b"".join(events(surface, *usages, start=start)))
    pieces = [translator.piece(each) for each in given]
    assert not any(piece.failed for piece in pieces)
    return next((each.reported for each in reversed(pieces) if each.reported), None)


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_usage_means_the_same_on_every_surface(row: Json, surface: str) -> None:
    dialect, api = SURFACES[surface]
    body = json.dumps(whole(surface, row["usage"])).encode()
    answer, known, _ = DIALECTS[dialect].codecs[api].answer(body, target=target(dialect))
    assert known == TokenUsage(*row["known"])
    assert last_report(surface, row["usage"]) == known
    # A caller who reads what it is told, by the names of its surface, gets the same.
    told = reported(answer["usage"])
    assert told is not None
    assert (told.input, told.output) == (known.input, known.output)
    assert (told.cached_input, told.cache_write) == (known.cached_input, known.cache_write)


CHARGED = [0, 1, 2, 5, 12, 16, 18, 26, 33]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("row", [ROWS[at] for at in CHARGED], ids=[IDS[at] for at in CHARGED])
def test_the_ledger_records_the_usage_that_the_provider_reports(
    play: Play, row: Json, surface: str
) -> None:
    dialect, _ = SURFACES[surface]
    body = json.dumps(whole(surface, row["usage"])).encode()
    call = asked(surface, streamed=False)
    with play(lambda peer: peer.answer(body), request=call, dialect=dialect) as made:
        complete(made)
    parts = plays(*events(surface, row["usage"]))
    with play(parts, request=asked(surface, streamed=True), dialect=dialect) as made:
        read(stream(made))
    charged = UsageRecord.objects.values_list(
        "input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens",
        "cache_write_tokens", "source",
    )  # fmt: skip
    assert list(charged) == [(*row["known"], "provider")] * 2


@pytest.mark.parametrize("surface", ["chat at Anthropic", "messages"])
@pytest.mark.parametrize(
    ("start", "ends", "known"),
    [
        # envoyproxy/ai-gateway#1631, zai-org/GLM-5#139 and BerriAI/litellm#41406.
        ({"input_tokens": 15, "output_tokens": 1}, [{"input_tokens": 0, "output_tokens": 20}], (15, 20)),
        ({"input_tokens": 0, "output_tokens": 0}, [{"input_tokens": 14, "output_tokens": 9}], (14, 9)),
        ({"input_tokens": 0, "cache_read_input_tokens": 0}, [{"input_tokens": 11, "output_tokens": 5}], (11, 5)),
        # A cache of the start stays, beside a prompt that comes again and in an end that names neither.
        ({"input_tokens": 9, "cache_read_input_tokens": 5}, [{"output_tokens": 3}], (14, 3, 5)),
        ({"input_tokens": 9}, [{"cache_read_input_tokens": 5, "output_tokens": 3}], (14, 3, 5)),
        ({"input_tokens": 9, "cache_creation": {"ephemeral_1h_input_tokens": 7}},
         [{"output_tokens": 3, "cache_creation": {"ephemeral_1h_input_tokens": 0}}], (16, 3, 0, 0, 7)),
        ({"input_tokens": 9}, [{"output_tokens": 30}, {"output_tokens": 0}], (9, 30)),
        ({"input_tokens": 9}, [{"output_tokens": 30}, {}, None], (9, 30)),
        ({"input_tokens": 9}, [{"output_tokens": 30}, {"output_tokens": 20}], (9, 20)),
        ({"input_tokens": 9}, [{"output_tokens": 0}], (9, 0)),
    ],
)  # fmt: skip
def test_a_later_event_takes_nothing_back(
    surface: str, start: Json, ends: list[Any], known: tuple[int, ...]
) -> None:
    assert last_report(surface, *ends, start=start) == TokenUsage(*known)


@pytest.mark.parametrize(
    ("usages", "known"),
    [
        ([{"prompt_tokens": 9, "completion_tokens": 5}, {"prompt_tokens": 0, "completion_tokens": 0}], (9, 5)),
        ([{"prompt_tokens": 9, "completion_tokens": 5}, {}, {"prompt_tokens": None}], (9, 5)),
        ([{"prompt_tokens": 9}, {"completion_tokens": 5}], (9, 5)),
        ([{"prompt_tokens": 0, "completion_tokens": 5}, {"prompt_tokens": 9, "completion_tokens": 0}], (9, 5)),
        ([{"prompt_tokens": 9, "completion_tokens": 0}], (9, 0)),
        ([{"prompt_tokens": 9, "completion_tokens": 7}, {"prompt_tokens": 9, "completion_tokens": 5}], (9, 5)),
        # The surplus of the total above both stays above them.
        ([{"prompt_tokens": 600, "completion_tokens": 5, "total_tokens": 1105, "cached_tokens": 500},
          {"prompt_tokens": 600, "completion_tokens": 6}], (1100, 6, 500)),
        ([{"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110},
          {"prompt_tokens": 10, "completion_tokens": 40}], (10, 40)),
    ],
)  # fmt: skip
def test_a_later_chunk_takes_nothing_back(usages: list[Any], known: tuple[int, ...]) -> None:
    assert last_report("chat", *usages) == TokenUsage(*known)
    assert last_report("chat", *usages[1:], start=usages[0]) == TokenUsage(*known)


def test_one_of_two_caches_that_exceed_the_total_counts() -> None:
    caches = {"cached_tokens": 3000, "cache_creation_input_tokens": 2000}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 2015, **caches}
    assert reported(usage) == TokenUsage(2010, 5, 3000, 0, 2000)


def test_a_zero_after_a_report_is_none_of_the_output_since() -> None:
    report, zero = Report(), {"prompt_tokens": 9, "completion_tokens": 0}
    assert report.add(zero) == TokenUsage(9, 0)
    assert report.add({**zero, "completion_tokens": 5}) == TokenUsage(9, 5)
    assert report.add(zero) is None


@pytest.mark.parametrize(
    ("usage", "known"),
    [
        ({"input_tokens": 8}, 8),
        ({"promptTokens": 8, "totalTokens": 8}, 8),
        ({"total_tokens": 8}, 8),
        ({"prompt_tokens": 8, "total_tokens": 20}, 8),
    ],
)
def test_embeddings_have_no_output(usage: Json, known: int) -> None:
    body = json.dumps({"data": [{"embedding": [0.5]}], "usage": usage}).encode()
    answer, report, _ = Embeddings().answer(body, target=target())
    assert report == TokenUsage(known, 0)
    assert answer["usage"].items() >= {"prompt_tokens": known, "total_tokens": known}.items()


COUNT = st.integers(0, 20) | st.integers(0, 2_000)
CACHES = st.dictionaries(
    st.sampled_from(["cached_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]), COUNT
)  # fmt: skip
REASONING = st.none() | st.fixed_dictionaries({"reasoning_tokens": COUNT})
NAMES = st.sampled_from([("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens")])


@given(NAMES, COUNT, COUNT, CACHES, REASONING, COUNT | st.none())
def test_a_report_is_between_what_it_names_and_its_total(
    names: tuple[str, str],
    prompt: int,
    completion: int,
    caches: dict[str, int],
    reasoning: dict[str, int] | None,
    more: int | None,
) -> None:
    total = {} if more is None else {"total_tokens": prompt + completion + more}
    usage = {names[0]: prompt, names[1]: completion, **caches, **total}
    known = reported({**usage, "completion_tokens_details": reasoning})
    assert known is not None
    assert known.input >= prompt
    assert known.output >= completion
    assert known.cached_input in {0, *caches.values()}
    assert known.cache_write == caches.get("cache_creation_input_tokens", 0)
    # Tokens that cannot be within prompt or completion are beside them, whatever the total says.
    apart = sum(each for each in (known.cached_input, known.cache_write) if each > prompt)
    apart += known.reasoning if known.reasoning > completion else 0
    if more is not None:
        assert known.input + known.output <= prompt + completion + max(more, apart)
        assert known.input + known.output >= prompt + completion + more
