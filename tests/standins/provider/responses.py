"""Answers of the stand-in provider to OpenAI's Responses API, without state."""

from collections.abc import Iterator
from typing import Any

from tests.standins.provider.answers import Answer, Json, dump, split


class Response(Answer):
    """A message, or a call of a tool, as the one item of a response."""

    MEMBERS = frozenset(
        """
        include input instructions max_output_tokens max_tool_calls model parallel_tool_calls prompt_cache_key
        prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options
        temperature text tool_choice tools top_logprobs top_p truncation
        """.split()  # noqa: SIM905 - easier to read than a list
    )

    @classmethod
    def as_chat(cls, body: Json) -> Json:
        if body.get("store") is not False or body.get("input") == []:
            raise ValueError("The stand-in has no state: 'store' is false, 'input' not empty.")
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        form = (body.get("text") or {}).get("format") or {}
        chat = {
            "model": body["model"],
            "stream": body.get("stream"),
            "messages": [_message(each) for each in items],
            "tools": [_tool(each) for each in body.get("tools") or () if "name" in each],
            "tool_choice": _choice(body.get("tool_choice")),
            "response_format": {"type": form.get("type"), "json_schema": form},
        }
        limit = body.get("max_output_tokens")
        return chat if limit is None else {**chat, "max_tokens": limit}

    def _pieces(self, question: str) -> list[str]:
        return split(self.asked.text or question) if self.is_custom else super()._pieces(question)

    @property
    def is_custom(self) -> bool:
        return self.tool is not None and self.tool["custom"]

    @property
    def id(self) -> str:
        return str(self.head["id"])[-12:]

    def completion(self) -> Json:
        return self._response(self._item("".join(self.pieces)), "done")

    def events(self, start: float) -> Iterator[bytes]:
        """As those of a chat completion: the beginning, the pieces, the end, and the response with its usage."""
        numbers = iter(range(1_000_000))
        place = {"item_id": self._item("")["id"], "output_index": 0}

        def events(*given: tuple[str, Json]) -> bytes:
            return b"".join(
                b"event: %b\ndata: %b\n\n"
                % (name.encode(), dump({"type": name, "sequence_number": next(numbers), **members}))
                for name, members in given
            )

        def part(text: str) -> Json:
            return {**place, "content_index": 0, "part": _text(text)}

        begun, is_text = {"response": self._response(None, "in_progress")}, self.tool is None
        added = {"output_index": 0, "item": self._item("")}
        first: list[tuple[str, Json]] = [
            ("response.created", begun),
            ("response.in_progress", begun),
            ("response.output_item.added", added),
        ]
        yield events(*first, *([("response.content_part.added", part(""))] if is_text else []))
        kind, name = self._streamed
        where = {**place, "content_index": 0, "logprobs": []} if is_text else place
        for number, piece in enumerate(self.pieces):
            due = start + number * self.asked.delay
            said = f"{due:017.6f}" if self.asked.clock == "yes" else piece
            yield events((f"{kind}.delta", {**where, "delta": said}))
        text = "".join(self.pieces)
        item = self._item(text)
        yield events(
            (f"{kind}.done", {**where, name: text}),
            *([("response.content_part.done", part(text))] if is_text else []),
            ("response.output_item.done", {"output_index": 0, "item": item}),
        )
        response = self._response(item, "done")
        yield events((f"response.{response['status']}", {"response": response}))

    @property
    def _streamed(self) -> tuple[str, str]:
        """The kind of the events with pieces, and the member that has all of them at the end."""
        if self.tool is None:
            return "response.output_text", "text"
        if self.is_custom:
            return "response.custom_tool_call_input", "input"
        return "response.function_call_arguments", "arguments"

    def _item(self, text: str) -> Json:
        if self.tool is None:
            content = [_text(text)] if text else []
            head = {"id": f"msg_{self.id}", "type": "message", "role": "assistant"}
            return {**head, "status": "completed", "content": content}
        kind, member = (
            ("custom_tool_call", "input") if self.is_custom else ("function_call", "arguments")
        )
        call = {"id": f"fc_{self.id}", "type": kind, "call_id": f"call_{self.id}"}
        return {**call, "status": "completed", "name": self.tool["name"], member: text}

    def _response(self, item: Json | None, status: str) -> Json:
        is_cut = status == "done" and self.finish == "length"
        ended = "incomplete" if is_cut else "completed"
        reports = status == "done" and self.asked.usage == "yes"
        return {
            "id": f"resp_{self.id}",
            "object": "response",
            "created_at": self.head["created"],
            "status": ended if status == "done" else status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "model": self.body["model"],
            "output": [] if item is None else [item],
            "parallel_tool_calls": True,
            "store": False,
            "tool_choice": "auto",
            "tools": [],
            "usage": self._usage() if reports else None,
        }

    def _usage(self) -> Json:
        usage = self.usage()
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": usage["completion_tokens_details"],
            "total_tokens": usage["total_tokens"],
        }


def _text(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message(item: Json) -> Json:
    content: Any = item.get("content") or item.get("output") or ""
    is_result = str(item.get("type")).endswith("_output")
    role = "tool" if is_result else item.get("role", "assistant")
    if isinstance(content, list):
        texts = [part for part in content if "text" in part]
        content = [{"type": "text", "text": part["text"]} for part in texts]
    return {"role": role, "content": content}


def _tool(tool: Json) -> Json:
    return {"function": {**tool, "custom": tool["type"] == "custom"}}


def _choice(choice: Any) -> Any:
    if isinstance(choice, dict):
        return {"function": choice} if "name" in choice else choice.get("mode", "auto")
    return choice or "auto"
