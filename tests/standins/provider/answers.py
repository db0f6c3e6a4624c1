"""Answers of the stand-in provider: the same words for the same request, one-shot or as the events of a stream.

A token is a run of up to eight ASCII letters, digits or underscores, or any other character that is not white space,
each with the white space before it. A stream sends one token in each event.
"""

import json
import re
import time
from collections.abc import Iterator
from itertools import chain, cycle, islice
from secrets import token_hex
from typing import Any

from tests.standins.provider.behaviour import Behaviour

Json = dict[str, Any]

PIECE = re.compile(r"\s*(?:[A-Za-z0-9_]{1,8}|\S)|\s+")
PER_MESSAGE = 4
QUOTE = 200
CLOSING = "This is the local stand-in, so the same question always gets the same answer."
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
DONE = b"data: [DONE]\n\n"


class Answer:
    """Text or the arguments of one tool call, in pieces of one token, as a chat completion."""

    MEMBERS = frozenset(
        """
        frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages metadata model n
        parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options reasoning_effort
        response_format safety_identifier seed service_tier stop store stream stream_options temperature tool_choice
        tools top_logprobs top_p user verbosity
        """.split()  # noqa: SIM905 - easier to read than a list
    )

    @classmethod
    def as_chat(cls, body: Json) -> Json:
        """The request as one for a chat completion; raises ValueError for what OpenAI refuses."""
        if "max_tokens" in body and "max_completion_tokens" in body:
            raise ValueError("'max_tokens' and 'max_completion_tokens' exclude each other.")
        if "stream_options" in body and not body.get("stream"):
            raise ValueError("'stream_options' is only allowed when 'stream' is enabled.")
        if not body.get("messages"):
            raise ValueError("Invalid 'messages': empty array.")
        return body

    def __init__(self, body: Json, question: str, asked: Behaviour) -> None:
        self.body = body
        self.asked = asked
        self.tool = _tool(body)
        self.limit = body.get("max_completion_tokens", body.get("max_tokens"))
        pieces = self._pieces(question)
        self.pieces = pieces if self.limit is None else pieces[: self.limit + asked.overrun]
        is_cut = self.limit is not None and len(pieces) > self.limit
        self.finish = "length" if is_cut else "tool_calls" if self.tool else "stop"
        self.head = {
            "id": f"chatcmpl-{token_hex(12)}",
            "created": int(time.time()),
            "model": body["model"],
            "system_fingerprint": "fp_standin001",
        }

    def _pieces(self, question: str) -> list[str]:
        asked, last = self.asked, self.body["messages"][-1]
        form = self.body.get("response_format") or {}
        schema = form.get("json_schema", {}).get("schema")
        if self.tool is not None:
            schema = self.tool.get("parameters") or {"type": "object"}
        elif form.get("type") == "json_object":
            schema = {"type": "object", "properties": {"reply": {}}}
        if schema is not None:
            return split(json.dumps(sample(schema, asked.text or question)))
        verb = "The tool answered" if last["role"] == "tool" else "You wrote"
        said = text_of(last) if last["role"] == "tool" else question
        text = asked.text or f"{verb}: “{said[:QUOTE].strip()}”. {CLOSING}"
        length = self.limit + asked.overrun if self.limit and asked.overrun else asked.tokens
        endless = chain(split(text), cycle(split(f" {text}")))
        return list(islice(endless, length)) if length else split(text)

    def usage(self) -> Json:
        messages = self.body["messages"]
        given = sum(PER_MESSAGE + len(split(text_of(message))) for message in messages)
        thought = int(self.asked.thinks * (self.asked.first + self.asked.pause))
        made = thought + len(self.pieces) + (len(split(self.tool["name"])) if self.tool else 0)
        return {
            "prompt_tokens": given,
            "completion_tokens": made,
            "total_tokens": given + made,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": thought},
        }

    def completion(self) -> Json:
        """The one-shot answer."""
        text = "".join(self.pieces)
        message: Json = {"role": "assistant", "content": text, "refusal": None}
        if self.tool is not None:
            message |= {"content": None, "tool_calls": [self._call(text)]}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish}
        body = {**self.head, "object": "chat.completion", "choices": [choice]}
        return {**body, "usage": self.usage()} if self.asked.usage == "yes" else body

    def events(self, start: float) -> Iterator[bytes]:
        """The events of a stream: the role, the pieces, the end, the usage where it is wanted, and [DONE].

        ``start`` is the moment of the first piece.
        """
        wants_usage = (self.body.get("stream_options") or {}).get("include_usage")
        reports = wants_usage and self.asked.usage == "yes"
        head = {**self.head, "object": "chat.completion.chunk"}
        if reports:
            head["usage"] = None

        def chunk(delta: Json, finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return event({**head, "choices": [choice]})

        first: Json = {"role": "assistant", "content": "", "refusal": None}
        if self.tool is not None:
            first |= {"content": None, "tool_calls": [{"index": 0, **self._call("")}]}
        yield chunk(first)
        # Only the piece is new in each event, which keeps a thousand streams cheap.
        mark = "<piece>"
        call = {"index": 0, "function": {"arguments": mark}}
        delta = {"content": mark} if self.tool is None else {"tool_calls": [call]}
        before, _, after = chunk(delta).partition(dump(mark))
        for number, piece in enumerate(self.pieces):
            due = start + number * self.asked.delay
            said = f"{due:017.6f}" if self.asked.clock == "yes" else piece
            yield before + dump(said) + after
        yield chunk({}, self.finish)
        if reports:
            yield event({**head, "choices": [], "usage": self.usage()})
        yield DONE

    def _call(self, arguments: str) -> Json:
        assert self.tool is not None
        function = {"name": self.tool["name"], "arguments": arguments}
        return {"id": f"call_{self.head['id'][-12:]}", "type": "function", "function": function}


def _tool(body: Json) -> Json | None:
    """The function to call; "auto" calls one until its result is there."""
    choice = body.get("tool_choice", "auto")
    tools = [tool["function"] for tool in body.get("tools") or () if tool.get("function")]
    if choice == "none" or (choice == "auto" and body["messages"][-1]["role"] == "tool"):
        return None
    if isinstance(choice, dict):
        tools = [each for each in tools if each["name"] == choice["function"]["name"]]
    return tools[0] if tools else None


def text_of(message: Json) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def split(text: str) -> list[str]:
    """The tokens of a text; joined again they are the text."""
    return PIECE.findall(text)


def sample(schema: Json, text: str) -> Any:
    """A value that fits a plain JSON schema, its texts the given one, with the members that are required, or all."""
    known, items = schema.get("properties", {}), schema.get("items", {})
    match schema.get("type"):
        case "object":
            return {name: sample(known[name], text) for name in schema.get("required") or known}
        case "array":
            return [sample(items, text)]
        case kind:
            return {"integer": 1, "number": 1, "boolean": True}.get(str(kind), text)


def dump(value: Any) -> bytes:
    """Compact JSON in UTF-8; a lone surrogate becomes a question mark."""
    return ENCODER.encode(value).encode("utf-8", "replace")


def event(data: Json) -> bytes:
    return b"data: " + dump(data) + b"\n\n"
