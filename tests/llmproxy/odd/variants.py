"""Makes variants of an odd answer that mean the same, or less: other line ends, cuts, and what may stand between."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from tests.llmproxy.odd.rows import Row

Json = Any
Path = tuple[Any, ...]

LINE_ENDS = (b"\n", b"\r\n", b"\r")
# Bytes that a server or proxy may send between events. A comment alone is the beginning of the next event.
BETWEEN = (
    b": keep-alive\n\n",
    b": keep-alive\n",
    b":\n\n",
    b"\n",
    b"\n\n\n",
    b"data:\n\n",
    b"data: \n\n",
    b"event: ping\ndata:\n\n",
    b"id: 7\nretry: 3000\n\n",
    b"data: null\n\n",
    b"data: ping\n\n",
)
# The members of each API whose absence changes nothing of what is said.
OPTIONAL = {
    "chat": {
        "id", "object", "created", "index", "role", "refusal", "logprobs", "type", "annotations",
        "prompt_tokens_details", "completion_tokens_details",
    },
    "messages": {"id", "index", "role", "stop_sequence", "content", "signature"},
    "responses": {
        "id", "object", "created_at", "sequence_number", "item_id", "output_index", "content_index", "summary_index",
        "status", "annotations", "role", "input_tokens_details", "output_tokens_details", "error",
        "incomplete_details", "usage",
    },
    "embeddings": {"object", "total_tokens"},
}  # fmt: skip
EMPTY = ("", [], {}, None)
MODES = ("absent", "null", "repeated")


class Member(NamedTuple):
    """A member of the data of an event (of a whole answer: event 0), and what becomes of it."""

    event: int
    path: Path
    mode: str


def line_ends(events: list[bytes], chance: Random) -> Iterator[list[bytes]]:
    for end in LINE_ENDS:
        yield [each.replace(b"\n", end) for each in events]
    yield [each.replace(b"\n", chance.choice(LINE_ENDS[:2])) for each in events]


def splits(events: list[bytes], chance: Random, *, most: int) -> Iterator[list[bytes]]:
    """A byte at a time, at one byte each, and at some; with each kind of line ends."""
    for lines in line_ends(events, chance):
        stream = b"".join(lines)
        yield [stream[at : at + 1] for at in range(len(stream))]
        places = range(1, len(stream))
        for at in chance.sample(places, min(most, len(places))):
            yield [stream[:at], stream[at:]]
        some = sorted(chance.sample(places, min(9, len(places))))
        yield [stream[a:b] for a, b in zip([0, *some], [*some, len(stream)], strict=True)]


def interrupted(events: list[bytes], chance: Random, *, most: int) -> Iterator[list[bytes]]:
    """With something between all events, between two of them, and with something else at each place."""
    for between in BETWEEN:
        yield [part for event in events for part in (between, event)]
    for _ in range(most):
        at = chance.randrange(len(events))
        yield [*events[:at], chance.choice(BETWEEN), *events[at:]]
        yield [part for event in events for part in (chance.choice(BETWEEN), event)]


def members(row: Row, datas: list[Any]) -> Iterator[Member]:
    """Every optional member of the data of these events, at any depth, absent, null and repeated."""
    for number, data in enumerate(datas):
        for path in _paths(data, row.api):
            if path[-1] in row.line.get("needs", ()):
                continue
            for mode in MODES:
                yield Member(number, path, mode)


def _paths(value: Json, api: str, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _paths(each, api, (*path, number))
    if isinstance(value, dict):
        for name, each in value.items():
            if is_optional(name, each, api, path):
                yield (*path, name)
            yield from _paths(each, api, (*path, name))


def is_optional(name: str, value: Json, api: str, path: Path) -> bool:
    if name in OPTIONAL[api]:
        # A call's own id says which one it is; a response has its usage at its end alone.
        is_head = name == "id" and ("tool_calls" in path or "item" in path or "output" in path)
        is_last = name == "usage" and value is not None
        if (name == "content" and "message" not in path) or (name == "status" and not path):
            # Those of a whole answer say what it is.
            return False
        is_of_call = api == "chat" and name in ("type", "index") and "tool_calls" not in path
        return not (is_head or is_last or is_of_call)
    # Choices that are empty say that the chunk has none.
    return value in EMPTY and name not in (
        "choices",
        "finish_reason",
        "stop_reason",
        "usage",
        "input",
    )


def written(data: Json, member: Member) -> bytes:
    """JSON in which a member is absent, null or repeated."""
    return _text(data, member.path, member.mode).encode("utf-8", "surrogateescape")


def _text(value: Json, path: Path, mode: str) -> str:
    if not path:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        each_written = [
            _text(each, path[1:] if number == path[0] else (), mode)
            for number, each in enumerate(value)
        ]
        return "[" + ",".join(each_written) + "]"
    pairs = []
    for name, each in value.items():
        if (name,) != path:
            pairs.append((name, _text(each, path[1:] if name == path[0] else (), mode)))
        elif mode != "absent":
            text = "null" if mode == "null" else json.dumps(each, ensure_ascii=False)
            pairs += [(name, text)] * (2 if mode == "repeated" else 1)
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in pairs) + "}"
