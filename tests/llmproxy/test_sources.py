"""Sources in an answer count towards no bound of its tokens (``sources.ndjson``).

``of`` is the public report of a row (owner/repository#number). Each event has ``member`` at the place ``in``, of 10 KB.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from config.platform.problems.problem import Problem
from llmproxy.calls import bodies, reading
from llmproxy.calls.relay import complete, stream
from llmproxy.dialects.passing import sources_size
from llmproxy.requests import messages, responses
from llmproxy.requests.chat import parse
from tests.llmproxy.test_relay import Play, play, plays, read
from usage.models import UsageRecord

__all__ = ["play"]

pytestmark = pytest.mark.django_db(transaction=True)
Json = dict[str, Any]
ROWS: list[Json] = [
    json.loads(line)
    for line in Path(__file__).with_name("sources.ndjson").read_text().split("\n")
    if line
]
LIMIT = 50
# In all more than an answer of so many tokens may have.
EVENTS = 150
SOURCE = [{"url": "https://a.test/" + "x" * 500, "title": "A source"}] * 20
SAID = [{"role": "user", "content": "hello"}]
USAGE = {"prompt_tokens": 9, "completion_tokens": 5}
OTHER_USAGE = {"input_tokens": 9, "output_tokens": 5}


def event(data: Json) -> bytes:
    return b"data: %s\n\n" % json.dumps(data).encode()


def chat(row: Json) -> list[bytes]:
    beside = {row["member"]: SOURCE}
    delta = {"content": "", **(beside if row["in"] == "delta" else {})}
    chunk = {"choices": [{"index": 0, "delta": delta}], **(beside if row["in"] == "chunk" else {})}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE}
    return [event(chunk)] * EVENTS + [event(end), b"data: [DONE]\n\n"]


def message(row: Json) -> list[bytes]:
    head = {"id": "m", "model": "m", "content": [], "usage": {"input_tokens": 9}}
    delta = {"type": "citations_delta", row["member"]: {"cited_text": "x" * 10_000}}
    return [
        event({"type": "message_start", "message": head}),
        event({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}),
        *[event({"type": "content_block_delta", "index": 0, "delta": delta})] * EVENTS,
        event({"type": "content_block_stop", "index": 0}),
        event(
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": OTHER_USAGE}
        ),
        event({"type": "message_stop"}),
    ]


def response(row: Json) -> list[bytes]:
    item = {"type": "message", "id": "i", "role": "assistant", "content": []}
    place = {"output_index": 0, "content_index": 0, "item_id": "i"}
    kind = "response.output_text.annotation.added"
    # Five times as much may come of a response.
    each = [event({"type": kind, **place, row["member"]: SOURCE})] * (EVENTS * 5)
    end = {"id": "r", "status": "completed", "output": [item], "usage": OTHER_USAGE}
    return [
        event({"type": "response.output_item.added", "output_index": 0, "item": item}),
        *each,
        event({"type": "response.completed", "response": end}),
    ]


MAKERS = {
    "chat": ("openai", chat),
    "chat at Anthropic": ("anthropic", message),
    "messages": ("anthropic", message),
    "responses": ("openai", response),
}


def asked(surface: str) -> Any:
    if surface == "messages":
        given = {"messages": SAID, "max_tokens": LIMIT, "stream": True}
        return messages.parse(given, headers={})
    if surface == "responses":
        return responses.parse({"input": "hello", "max_output_tokens": LIMIT, "stream": True})
    return parse({"messages": SAID, "max_tokens": LIMIT}, stream=True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_sources_in_every_event_make_no_answer_too_large(play: Play, row: Json) -> None:
    dialect, make = MAKERS[row["surface"]]
    with play(plays(*make(row)), request=asked(row["surface"]), dialect=dialect) as call:
        answer = read(stream(call))
    record = UsageRecord.objects.get(state="settled")
    assert record.end == ("answer_unread" if row.get("fails") else "done")
    assert (b"provider_error" in answer) == bool(row.get("fails"))
    if not row.get("fails"):
        assert record.output_tokens == 5


def test_sources_have_a_bound_too(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_ANSWER", 1024 * 1024)
    with play(plays(*chat(ROWS[0])), request=asked("chat")) as call:
        assert b"provider_error" in read(stream(call))
    assert UsageRecord.objects.get(state="settled").end == "answer_unread"


@pytest.mark.parametrize("enabled", [True, False])
def test_a_message_that_cites_may_repeat_its_documents(
    play: Play, monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    monkeypatch.setattr(bodies, "BYTES_BESIDE", 1_000)
    cited = "x" * 100_000
    block = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": cited},
        "citations": {"enabled": enabled},
    }
    body = {"messages": [{"role": "user", "content": [block]}], "max_tokens": LIMIT}
    citations = [{"type": "char_location", "cited_text": cited}] * 3
    made = {
        "id": "m",
        "model": "m",
        "content": [{"type": "text", "text": "So it is.", "citations": citations}],
        "stop_reason": "end_turn",
        "usage": OTHER_USAGE,
    }
    with play(
        lambda peer: peer.answer(json.dumps(made).encode()),
        request=messages.parse(body, headers={}),
        dialect="anthropic",
    ) as call:
        object.__setattr__(call.admission, "size", len(json.dumps(body)))
        if enabled:
            assert complete(call)["content"][0]["citations"] == citations
        else:
            with pytest.raises(Problem):
                complete(call)
    record = UsageRecord.objects.get(state="settled")
    assert (record.end, record.output_tokens) == ("done" if enabled else "answer_unread", 5)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b'{"citations": ["abc"], "choices": [{"delta": {"annotations": [1]}}]}', 10),
        (b'{"a": {"search_results": {"citations": []}}}', 16),
        (b'{"text": "citations"}', 0),
        (b"[" * 300 + b"]" * 300, 0),
        (b"no json", 0),
        (b"null", 0),
    ],
)
def test_sources_are_found_wherever_they_stand(data: bytes, size: int) -> None:
    assert sources_size(data) == size
