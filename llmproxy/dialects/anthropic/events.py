"""Translates the events of a streamed message to chunks of a chat completion.

Token counts are cumulative: the last value of each field counts, and nothing is added up. The start of a message
reports the prompt's tokens only; an output count is final once the message has its stop reason.
"""

import time
from dataclasses import dataclass
from typing import Any

from llmproxy.dialects.anthropic.answer import (
    arguments_of,
    hidden_thought,
    made_id,
    signature,
    thought,
    tool_call,
)
from llmproxy.dialects.anthropic.empties import LAST, kind_of, write_empties
from llmproxy.dialects.chat_answers import DONE, ChatTranslator
from llmproxy.dialects.ends import finish_reason, unsaid
from llmproxy.dialects.failures import failed_part, failure_of, failure_within
from llmproxy.dialects.protocol import KEEP_ALIVE, Piece, ProviderError, TokenUsage
from llmproxy.dialects.reading import parse_json_exactly, size_of, usage_of
from llmproxy.dialects.sse import Event, data_event
from llmproxy.dialects.usage import Report

_WITHOUT_ARGUMENTS = frozenset({"text", "thinking", "redacted_thinking"})


@dataclass(slots=True)
class _Block:
    """One content block: its kind, the number of a tool call or thought, and arguments that no delta has brought."""

    kind: str = ""
    call: int | None = None
    thought: int | None = None
    input: str | None = None


class EventTranslator(ChatTranslator):
    """The translator of one stream. It skips events and blocks of unknown kinds."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._head: dict[str, Any] = {}
        self._report = Report()
        self._tools = 0
        # The id of the last call of a tool.
        self._last_call: str | None = None
        self._thoughts = 0
        # By index, since deltas of blocks may alternate. A delta without an index belongs to the newest block.
        self._blocks: dict[Any, _Block] = {}
        self._newest = _Block()

    def ending(self, charged: TokenUsage) -> bytes:
        if not self._include_usage:
            return DONE
        return self._event(choices=[], usage=usage_of(charged)) + DONE

    def _read(self, event: Event, data: bytes) -> Piece:
        if data.strip() == LAST:
            return self._end()
        given = parse_json_exactly(data)
        return Piece() if given is None else self._translate(given, kind_of(given, event))

    def _translate(self, given: dict[str, Any], kind: str) -> Piece:
        piece = Piece()
        match kind:
            case "message_start":
                piece = self._start(given["message"])
            case "content_block_start":
                piece = self._block_start(given.get("index"), given["content_block"])
            case "content_block_delta":
                piece = self._block_delta(given.get("index"), given["delta"])
            case "content_block_stop":
                piece = self._block_stop(given.get("index"))
            case "message_delta":
                piece = self._message_delta(given)
            case "message_stop":
                piece = self._end()
            case "error":
                piece = Piece(failed=failure_of(given, key=self._key()))
            case "ping":
                piece = Piece(forward=KEEP_ALIVE)
        return piece

    def _end(self) -> Piece:
        # A message without its stop reason was cut on the way.
        failed = None if self._finished else ProviderError()
        return Piece(ended=self._finished, failed=failed)

    def _start(self, message: dict[str, Any]) -> Piece:
        self._head = {
            "id": message.get("id") or made_id(),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": self._called or message["model"],
        }
        self._report.add(message.get("usage"), is_final=False)
        role = {"role": "assistant", "content": ""}
        return Piece(forward=self._chunk(role), prompt=self._report.prompt)

    def _block_start(self, index: Any, block: dict[str, Any]) -> Piece:
        write_empties(block)
        self._newest = self._blocks[index] = _Block(block["type"])
        match block["type"]:
            case "text":
                return self._text("content", block["text"])
            case "thinking":
                self._newest.thought = self._next_thought()
                return self._thinking(self._newest, block["thinking"])
            case "redacted_thinking":
                number, after = self._next_thought(), self._last_call
                details = [hidden_thought(block["data"], number, after=after)]
                chunk = self._chunk({"reasoning_details": details})
                return Piece(forward=chunk, size=len(block["data"]))
            case "tool_use":
                self._newest.call = self._tools
                self._newest.input = arguments_of(block)
                self._tools, self._last_call = self._tools + 1, block["id"]
                call = tool_call(block["id"], block["name"], "")
                return Piece(forward=self._call(self._newest, call), size=size_of(block["name"]))
        return Piece()

    def _block_delta(self, index: Any, delta: dict[str, Any]) -> Piece:
        write_empties(delta)
        match delta["type"]:
            case "text_delta":
                return self._text("content", delta["text"])
            case "thinking_delta":
                return self._thinking(self._block(index), delta["thinking"])
            case "signature_delta":
                return self._signature(self._block(index), delta["signature"])
            case "input_json_delta":
                block = self._block(index)
                # Arguments never belong to a block that has none.
                block = self._newest if block.kind in _WITHOUT_ARGUMENTS else block
                return self._arguments(block, delta["partial_json"])
        return Piece()

    def _block_stop(self, index: Any) -> Piece:
        block = self._block(index)
        return Piece() if block.input is None else self._arguments(block, block.input)

    def _block(self, index: Any) -> _Block:
        return self._newest if index is None else self._blocks.get(index, self._newest)

    def _message_delta(self, data: dict[str, Any]) -> Piece:
        reason = (data.get("delta") or {}).get("stop_reason")
        # An output count from before the stop reason is not final.
        is_end = self._finished or reason is not None
        known, forward = self._report.add(data.get("usage"), is_final=is_end), b""
        if not is_end:
            return Piece()
        if error := failure_within({}, reason):
            failed = failed_part(error, key=self._key())
            return Piece(failed=failed, is_within=True, reported=known)
        if not self._finished:
            self._finished = True
            reason = reason or unsaid(has_calls=bool(self._tools))
            forward = self._chunk({}, finish=finish_reason(reason, provider=self._provider))
        return Piece(forward=forward, finished=True, reported=known)

    def _text(self, member: str, text: str) -> Piece:
        if not text:
            return Piece()
        return Piece(forward=self._chunk({member: text}), size=size_of(text))

    def _next_thought(self) -> int:
        self._thoughts += 1
        return self._thoughts - 1

    def _thinking(self, block: _Block, text: str) -> Piece:
        if not text:
            return Piece()
        details = [] if block.thought is None else [thought(text, block.thought)]
        delta = {"reasoning_content": text, "reasoning_details": details}
        return Piece(forward=self._chunk(delta), size=size_of(text))

    def _signature(self, block: _Block, given: str) -> Piece:
        if not given or block.thought is None:
            return Piece()
        details = [thought("", block.thought) | signature(given, after=self._last_call)]
        return Piece(forward=self._chunk({"reasoning_details": details}))

    def _arguments(self, block: _Block, text: str) -> Piece:
        # Calls of the provider's own tools are not forwarded.
        if not text or block.call is None:
            return Piece()
        block.input = None
        call = {"function": {"arguments": text}}
        return Piece(forward=self._call(block, call), size=size_of(text))

    def _call(self, block: _Block, call: dict[str, Any]) -> bytes:
        return self._chunk({"tool_calls": [{"index": block.call, **call}]})

    def _chunk(self, delta: dict[str, Any], *, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._event(choices=[choice])

    def _event(self, *, choices: list[dict[str, Any]], usage: Any = None) -> bytes:
        if not self._head:
            # The provider sent an event before the start of the message.
            raise ValueError
        chunk = {**self._head, "choices": choices}
        if self._include_usage:
            chunk["usage"] = usage
        return data_event(chunk)
