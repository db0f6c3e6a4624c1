"""Streams in the shapes in which providers send them, and what OpenAI's SDK makes of each.

``streams.ndjson`` has one stream a line, in short: shapes are real, words and numbers ours. Its ``heard`` is written
by this recorder, which plays a stream to the SDK:

    python -m tests.standins.streams

Streams that the SDK misreads without the service, as texts in parts, have ``"by": "hand"`` and keep what is there.

A line of OpenAI's dialect has the members of each chunk in ``head`` and of each choice in ``choice``. An event is a
text or a delta, ``{"end": reason, …}`` with further members of its chunk, ``{"=": …}`` with the members of a whole one,
or ``{"raw": …}`` as it is. ``[DONE]`` follows unless ``done`` is false. A line of Anthropic's has in ``start`` the
usage of its start, and as events blocks (``[kind, part, …]``) or events as they are; ``stop`` and ``usage`` end it.
"""

import json
from pathlib import Path
from typing import Any, Self

import httpx
import openai

Json = dict[str, Any]

FILE = Path(__file__).with_name("streams.ndjson")
MODEL = "a-model"
ASSISTANT = "assistant"
DELTAS = {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}


class Shape:
    """One line of the file."""

    def __init__(self, line: Json) -> None:
        self.line = line
        self.name: str = line["name"]
        self.heard: Json = line.get("heard", {})
        # The tokens that have to be metered: input, output, of these cached and reasoning, and written to a cache.
        self.metered: list[int] = [*line.get("metered", []), 0][:5]
        # The code and status of the problem that ends it, and the provider's words where they are told.
        self.fails: list[Any] = line.get("fails", [])

    @classmethod
    def all(cls) -> list[Self]:
        return [cls(json.loads(line)) for line in FILE.read_text().split("\n") if line]

    @property
    def dialect(self) -> str:
        return "anthropic" if "start" in self.line else "openai"

    def events(self) -> list[bytes]:
        """The events as the provider writes them."""
        if self.dialect == "anthropic":
            return [_event(each, name=each["type"]) for each in self._messages()]
        last = [b"data: [DONE]\n\n"] if self.line.get("done", True) else []
        return [*map(self._chunk, self.line["events"]), *last]

    def _chunk(self, event: Any) -> bytes:
        if isinstance(event, dict) and "raw" in event:
            raw: str = event["raw"]
            return raw.encode()
        chunk: Json = {**self.line.get("head", {})}
        choice: Json = {"index": 0, **self.line.get("choice", {}), "finish_reason": None}
        if isinstance(event, str):
            event = {"content": event}
        if "=" in event:
            chunk |= event["="]
        elif "end" in event:
            chunk["choices"] = [{**choice, "delta": {}, "finish_reason": event["end"]}]
            chunk |= {name: value for name, value in event.items() if name != "end"}
        else:
            chunk["choices"] = [{**choice, "delta": event}]
        return _event(chunk)

    def _messages(self) -> list[Json]:
        line, index = self.line, 0
        head = {
            "id": "msg_1",
            "type": "message",
            "role": ASSISTANT,
            "model": "claude",
            "content": [],
        }
        events: list[Json] = [
            {
                "type": "message_start",
                "message": {**head, "stop_reason": None, "usage": line["start"]},
            }
        ]
        if line.get("starts") is False:
            events = []
        for event in line["events"]:
            if isinstance(event, dict):
                events.append(event)
            else:
                events += [{**each, "index": index} for each in _block(*event)]
                index += 1
        if "stop" in line:
            delta = {"stop_reason": line["stop"], "stop_sequence": None}
            events.append({"type": "message_delta", "delta": delta, "usage": line["usage"]})
            events.append({"type": "message_stop"})
        return events


def _block(kind: str, *parts: Any) -> list[Json]:
    """A content block: a text, a thought with its signature, a tool call, or any other that comes in one piece."""
    start: Json = {"type": kind}
    match kind:
        case "text":
            start["text"] = ""
        case "thinking":
            start |= {"thinking": "", "signature": ""}
        case "tool_use":
            start, parts = {**start, "id": parts[0], "name": parts[1], "input": {}}, parts[2:]
        case _:
            start, parts = {**start, **parts[0]}, ()
    member = DELTAS.get(kind, "")
    delta = "input_json_delta" if kind == "tool_use" else f"{kind}_delta"
    deltas: list[Json] = [{"type": delta, member: part} for part in parts]
    if kind == "thinking":
        deltas.append({"type": "signature_delta", "signature": "c2lnbmVk"})
    return [
        {"type": "content_block_start", "content_block": start},
        *({"type": "content_block_delta", "delta": delta} for delta in deltas),
        {"type": "content_block_stop"},
    ]


def _event(data: Json, *, name: str = "") -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def heard_by_the_sdk(body: bytes) -> Json:
    """Returns the reading of a stream by OpenAI's SDK."""
    answer = httpx.Response(200, content=body, headers={"Content-Type": "text/event-stream"})
    transport = httpx.MockTransport(lambda request: answer)
    with (
        httpx.Client(transport=transport) as client,
        openai.OpenAI(api_key="k", base_url="http://a.test", http_client=client) as sdk,
        sdk.chat.completions.stream(
            model=MODEL, messages=[{"role": "user", "content": "Hello"}]
        ) as stream,
    ):
        # The helper raises for an answer that is cut at its limit; what it has put together is there all the same.
        stream.until_done()
        return as_heard(stream.current_completion_snapshot)


def as_heard(final: Any) -> Json:
    """The message and the finish reason, without what the SDK adds and what nobody said."""
    (choice, *_) = final.choices
    message = choice.message.model_dump()
    kept = {name: value for name, value in message.items() if value not in (None, "", [])}
    for call in kept.get("tool_calls", ()):
        call["function"].pop("parsed_arguments", None)
    return {"message": kept, "finish": choice.finish_reason}


def main() -> None:
    lines = []
    for shape in Shape.all():
        line = shape.line
        if shape.dialect == "openai" and not shape.fails and line.get("by") != "hand":
            heard = heard_by_the_sdk(b"".join(shape.events()))
            # Texts of every delta are put together, also the role of servers that say it in each.
            heard["message"]["role"] = ASSISTANT
            line["heard"] = heard
        lines.append(json.dumps(line, ensure_ascii=False))
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
