"""The table of odd answers (``answers.ndjson``), one case a line.

``of`` is the public report that it is a sample of (owner/repository#number), and ``kind`` what is odd. ``api`` is that
of the provider: ``chat``, ``responses``, ``messages`` or ``embeddings``; a row is read on every surface that it serves.
``whole`` is an answer in one piece (a text as it is), ``events`` a stream: a text as it is, or the data of an event.
``asked`` are members of the request. ``heard`` is what a caller reads: ``text``, ``thought``, ``refusal``, ``calls``
(name and arguments), ``finish`` in OpenAI's words, or ``vectors``. ``metered`` is the ledger's record: input, output,
of these read from a cache and reasoning, and written to a cache. A row that ``fails`` has the code of its problem
instead. One that ``needs`` a member cannot be read without it.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from llmproxy.dialects.protocol import TokenUsage
from llmproxy.requests.call_request import Surface

Json = dict[str, Any]

FILE = Path(__file__).with_name("answers.ndjson")
# The dialect of an API, and the surfaces that it serves.
DIALECTS = {
    "chat": "openai",
    "responses": "openai",
    "embeddings": "openai",
    "messages": "anthropic",
}
SURFACES = {
    "chat": [Surface.CHAT],
    "responses": [Surface.RESPONSES],
    "embeddings": [Surface.EMBEDDINGS],
    "messages": [Surface.MESSAGES, Surface.CHAT],
}


@dataclass(kw_only=True)
class Heard:
    """A caller's reading of an answer."""

    text: str = ""
    thought: str = ""
    refusal: str = ""
    calls: list[list[Any]] = field(default_factory=list)
    finish: str = "stop"
    vectors: list[list[float]] = field(default_factory=list)


class Row:
    """One line of the table."""

    def __init__(self, line: Json) -> None:
        self.line = line
        self.name: str = line["name"]
        self.api: str = line["api"]
        self.dialect = DIALECTS[self.api]
        self.asked: Json = line.get("asked", {})
        self.heard = Heard(**line.get("heard", {}))
        self.fails: str | None = line.get("fails")
        self.metered = TokenUsage(*line["metered"]) if "metered" in line else None

    @classmethod
    def all(cls) -> list[Self]:
        return [cls(json.loads(line)) for line in FILE.read_text().split("\n") if line]

    def events(self) -> list[bytes]:
        """The events as the provider writes them."""
        return [self.event(each) for each in self.line["events"]]

    def event(self, given: Any) -> bytes:
        if isinstance(given, str):
            return given.encode("utf-8", "surrogateescape")
        name = "" if self.api == "chat" else f"event: {given['type']}\n"
        return f"{name}data: {json.dumps(given, ensure_ascii=False)}\n\n".encode()

    def whole(self) -> bytes:
        given = self.line["whole"]
        return given.encode() if isinstance(given, str) else json.dumps(given).encode()


def cases(member: str) -> list[Any]:
    """Each row that has such an answer, on each surface, with a name for the test."""
    return [
        (row, surface) for row in Row.all() if member in row.line for surface in SURFACES[row.api]
    ]


def named(case: Any) -> str:
    return case.name if isinstance(case, Row) else str(getattr(case, "value", case))


def arguments(text: str) -> Any:
    """The arguments of a call; none are an empty text."""
    return json.loads(text or "{}")
