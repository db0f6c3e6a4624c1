"""A strict caller: reads what it gets as the APIs are documented, and forgives nothing."""

import json
from base64 import b64decode
from struct import unpack
from typing import Any

from llmproxy.requests.call_request import Surface
from tests.llmproxy.odd.rows import Heard, arguments

Json = dict[str, Any]
REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
}
STATUSES = {"completed": "stop", "incomplete": "length"}


class Listener:
    """A caller's view of an answer: its text, and whether it was complete or failed."""

    def __init__(self) -> None:
        self.heard = Heard(finish="")
        self.is_whole = False
        self.has_failed = False


def listen(surface: Surface, body: bytes) -> Listener:
    """Reads a stream."""
    listener = {Surface.MESSAGES: Messages, Surface.RESPONSES: Responses}.get(surface, Chat)()
    for name, data in dispatched(body):
        assert not (listener.is_whole or listener.has_failed) or surface is Surface.RESPONSES
        listener.take(name, data)  # type: ignore[attr-defined]
    return listener


def dispatched(body: bytes) -> list[tuple[str, str]]:
    """The events of a stream, as a reader of lines dispatches them that takes any blank line for an event's end."""
    found, name, data = [], "", None
    assert body.endswith((b"\n\n", b": keep-alive\n"))
    for line in body.decode().split("\n"):
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            assert data is None, "one line of data an event"
            data = line.removeprefix("data: ")
        elif line == "" and (data is not None or name):
            assert data, "an event without data"
            found.append((name, data))
            name, data = "", None
        else:
            assert line in ("", ": keep-alive"), line
    return found


class Chat(Listener):
    def __init__(self) -> None:
        super().__init__()
        self._calls: list[list[str]] = []

    def take(self, name: str, data: str) -> None:
        assert not name
        if data == "[DONE]":
            self.is_whole = True
            self.heard.calls = [[call[1], arguments(call[2])] for call in self._calls]
            return
        chunk = json.loads(data)
        if "error" in chunk:
            self.has_failed = True
            return
        for choice in chunk["choices"]:
            assert choice["index"] == 0
            self._delta(choice["delta"])
            assert choice.get("finish_reason") != "", "no word of OpenAI's"
            self.heard.finish = choice.get("finish_reason") or self.heard.finish

    def _delta(self, delta: Json) -> None:
        self.heard.text += delta.get("content") or ""
        self.heard.thought += delta.get("reasoning_content") or ""
        self.heard.refusal += delta.get("refusal") or ""
        for call in delta.get("tool_calls") or ():
            if call["index"] == len(self._calls):
                assert call["id"]
                self._calls.append(["", "", ""])
            known = self._calls[call["index"]]
            assert not (known[0] and call.get("id")), "SDKs put the ids of all deltas together"
            for place, text in enumerate(
                (call.get("id"), *map(call["function"].get, ("name", "arguments")))
            ):
                known[place] += text or ""


class Messages(Listener):
    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, Json] = {}

    def take(self, name: str, data: str) -> None:
        event = json.loads(data)
        assert event["type"] == name
        match name:
            case "message_start":
                assert (event["message"]["type"], event["message"]["role"]) == (
                    "message",
                    "assistant",
                )
                assert event["message"]["id"]
                self._blocks = dict(enumerate(event["message"]["content"]))
            case "content_block_start":
                assert event["index"] == len(self._blocks)
                self._blocks[event["index"]] = {**event["content_block"], "written": ""}
                self.heard.text += event["content_block"].get("text", "")
            case "content_block_delta":
                self._delta(self._blocks[event["index"]], event["delta"])
            case "message_delta":
                self.heard.finish = REASONS[event["delta"]["stop_reason"]]
            case "message_stop":
                self._end()
            case "error":
                self.has_failed = True

    def _delta(self, block: Json, delta: Json) -> None:
        member = {
            "text_delta": "text",
            "thinking_delta": "thinking",
            "signature_delta": "signature",
            "input_json_delta": "written",
        }[delta["type"]]
        text = delta["partial_json" if member == "written" else member]
        block[member] += text
        self.heard.text += text if member == "text" else ""

    def _end(self) -> None:
        self.is_whole = True
        self.heard = heard_of_blocks([*self._blocks.values()], self.heard.finish)


class Responses(Listener):
    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, Json] = {}

    def take(self, name: str, data: str) -> None:
        event = json.loads(data)
        assert event["type"] == name
        match name:
            case "error" | "response.failed":
                self.has_failed = True
            case "response.completed" | "response.incomplete":
                self.is_whole = True
                self.heard = heard_of_items(event["response"])
            case "response.output_item.added":
                item = self._items[event["output_index"]] = event["item"]
                assert isinstance(
                    item.get("content", []) if item["type"] == "message" else [], list
                )
                assert item["type"] != "message" or item["content"] == []
                assert item["type"] != "function_call" or item["arguments"] == ""
            case "response.output_text.delta":
                assert self._items[event["output_index"]]["type"] == "message"
                self.heard.text += event["delta"]


def heard_of_blocks(blocks: list[Json], finish: str) -> Heard:
    made = Heard(finish=finish)
    for block in blocks:
        match block["type"]:
            case "text":
                made.text += block["text"]
            case "thinking":
                assert isinstance(block["signature"], str)
                made.thought += block["thinking"]
            case "tool_use":
                assert block["id"]
                given = json.loads(block.get("written") or "{}") or block["input"]
                made.calls.append([block["name"], given])
    return made


def heard_of_items(response: Json) -> Heard:
    made = Heard(finish=STATUSES[response["status"]])
    assert response["id"]
    for item in response["output"]:
        match item["type"]:
            case "message":
                made.text += "".join(part.get("text", "") for part in item["content"])
                made.refusal += "".join(part.get("refusal", "") for part in item["content"])
            case "reasoning":
                made.thought += "".join(part["text"] for part in item["summary"])
            case "function_call":
                assert item["call_id"]
                made.calls.append([item["name"], arguments(item["arguments"])])
                made.finish = "tool_calls"
    return made


def heard_of_whole(surface: Surface, body: bytes) -> Heard:
    """Reads a whole answer."""
    answer = json.loads(body)
    match surface:
        case Surface.MESSAGES:
            assert (answer["type"], answer["role"], bool(answer["id"])) == (
                "message",
                "assistant",
                True,
            )
            return heard_of_blocks(answer["content"], REASONS[answer["stop_reason"]])
        case Surface.RESPONSES:
            return heard_of_items(answer)
        case Surface.EMBEDDINGS:
            assert [each["index"] for each in answer["data"]] == [*range(len(answer["data"]))]
            return Heard(vectors=[numbers(each["embedding"]) for each in answer["data"]])
    (choice,) = answer["choices"]
    said = choice["message"]
    calls = [
        [call["function"]["name"], arguments(call["function"]["arguments"])]
        for call in said.get("tool_calls") or ()
    ]
    assert all(call["id"] for call in said.get("tool_calls") or ())
    return Heard(
        text=said.get("content") or "",
        thought=said.get("reasoning_content") or "",
        refusal=said.get("refusal") or "",
        calls=calls,
        finish=choice["finish_reason"],
    )


def numbers(embedding: Any) -> list[float]:
    if isinstance(embedding, list):
        return embedding
    packed = b64decode(embedding)
    return [*unpack(f"<{len(packed) // 4}f", packed)]
