"""Passes on the events of a streamed message; the last two wait for the settlement.

Token counts are cumulative: the last value of each field counts. The start of a message reports the prompt's tokens
only; an output count is final once the message has its stop reason. So the last ``message_delta`` has the charge.
"""

from json import dumps
from typing import Any
from uuid import uuid4

from config.platform.problems.problem import Problem
from config.platform.problems.rendering import anthropic_error
from config.platform.request.request_id import current as request_id
from llmproxy.dialects.anthropic.empties import LAST, kind_of, write_empties
from llmproxy.dialects.ends import stop_reason, unsaid
from llmproxy.dialects.failures import failed_part, failure_of, failure_within
from llmproxy.dialects.passing import (
    OtherTexts,
    drop_costs,
    may_hold_costs,
    text_size,
    without_costs,
)
from llmproxy.dialects.protocol import KEEP_ALIVE, Piece, ProviderError, TokenUsage, Translator
from llmproxy.dialects.reading import count_of, parse_json
from llmproxy.dialects.sse import Event, data_event
from llmproxy.dialects.usage import Report, merged

# The kinds of blocks and of their pieces that pass. Others belong to tools that the provider runs.
BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
_DELTAS = frozenset({
    "text_delta", "thinking_delta", "signature_delta", "citations_delta", "input_json_delta",
})  # fmt: skip
# The members of a block or of a piece that are no output.
_NO_OUTPUT = frozenset({"type", "id", "signature", "citations", "citation", "caller"})
# The members of an event or a message that are no output, or counted by themselves.
NO_TEXT = frozenset({
    "type", "index", "message", "content_block", "delta", "usage", "id", "role", "model", "content", "stop_reason",
    "stop_sequence", "stop_details", "context_management", "container",
})  # fmt: skip
# Those that hold a block or a piece of one.
_PARTS = ("content_block", "delta", "message")
_STOP = {"type": "message_stop"}


class MessageTranslator(Translator):
    """The translator of one stream. It skips events and blocks of unknown kinds."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._begun = False
        # The event with the stop reason, and the usage so far: as it is written, and as it is read.
        self._last: dict[str, Any] | None = None
        self._usage: dict[str, Any] = {}
        self._report = Report()
        self._others = OtherTexts(NO_TEXT)
        # The indexes of the blocks that are skipped: clients count those that they get.
        self._skipped: set[int] = set()
        # The index of the block that began last, and whether one calls a tool.
        self._newest, self._has_calls = -1, False

    def ending(self, charged: TokenUsage) -> bytes:
        assert self._last is not None
        last = {**self._last, "usage": usage_of(self._usage, charged)}
        return named_event(last) + named_event(_STOP)

    def failure(self, problem: Problem) -> bytes:
        error = {
            **anthropic_error(problem),
            "request_id": request_id(),
            "code": problem.code,
            "status": problem.status,
            "detail": problem.detail,
        }
        return named_event(error)

    def _read(self, event: Event, data: bytes) -> Piece:
        if data.strip() == LAST:
            return self._end()
        given, is_json = parse_json(data)
        if given is None:
            return Piece()
        is_named = bool(given.get("type"))
        kind, usage = kind_of(given, event), given.get("usage")
        if kind == "message_start":
            usage = given["message"].get("usage")
        if isinstance(usage, dict):
            self._usage = merged(self._usage, without_costs(usage))
        changed = may_hold_costs(data) and drop_costs(given)
        plain = b"event: %b\ndata: %b\n\n" % (kind.encode(), data.strip())
        is_ordinary = is_json and is_named and not changed and b"\n" not in data.strip()
        return self._translate(kind, given, usage, plain if is_ordinary else b"")

    def _translate(self, kind: str, given: dict[str, Any], usage: Any, raw: bytes) -> Piece:
        piece = Piece()
        match kind:
            case "message_start":
                piece = self._start(given, usage)
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                piece = self._block(given, raw)
            case "message_delta":
                piece = self._message_delta(given, usage)
            case "message_stop":
                piece = self._end()
            case "error":
                piece = Piece(failed=failure_of(given, key=self._key()))
            case "ping":
                # Before the message it would count as the beginning of an answer.
                piece = Piece(forward=(raw or named_event(given)) if self._begun else KEEP_ALIVE)
        return piece

    def _end(self) -> Piece:
        # A message without its stop reason was cut on the way.
        failed = None if self._last is not None else ProviderError()
        return Piece(ended=failed is None, failed=failed)

    def _start(self, given: dict[str, Any], usage: Any) -> Piece:
        message, self._begun = given["message"], True
        if self._called is not None:
            message["model"] = self._called
        # Clients read the prompt's tokens here, and an output count that is no more than a beginning.
        message["usage"] = {"input_tokens": 0, "output_tokens": 0, **self._usage}
        self._usage.pop("output_tokens", None)
        self._report.add(usage, is_final=False)
        message["content"] = known_blocks(message.get("content") or [])
        write_message_head(message)
        size = sum(map(size_of_part, message["content"])) + self._others.size(given, message)
        return Piece(forward=named_event(given), size=size, prompt=self._report.prompt)

    def _block(self, given: dict[str, Any], raw: bytes) -> Piece:
        if not self._begun:
            raise ValueError
        if self._number(given):
            raw = b""
        index: Any = given["index"]
        part: Any = given.get("content_block") or given.get("delta")
        if "content_block" in given:
            self._has_calls = self._has_calls or part["type"] == "tool_use"
            if part["type"] not in BLOCKS:
                self._skipped.add(index)
        if index in self._skipped or ("delta" in given and part["type"] not in _DELTAS):
            return Piece()
        if part is not None and write_empties(part):
            raw = b""
        if self._skipped:
            given["index"], raw = index - sum(each < index for each in self._skipped), b""
        parts = (given[name] for name in _PARTS if given.get(name))
        size = sum(map(size_of_part, parts)) + self._others.size(given)
        return Piece(forward=raw or named_event(given), size=size)

    def _number(self, given: dict[str, Any]) -> bool:
        """Writes the index of a block where it is missing, and says whether it was: a block without one is the next,
        and what goes on is the newest."""
        if "content_block" in given:
            self._newest = given["index"] if given.get("index") is not None else self._newest + 1
        if given.get("index") is not None:
            return False
        given["index"] = self._newest
        return True

    def _message_delta(self, given: dict[str, Any], usage: Any) -> Piece:
        delta = given.get("delta") or {}
        reason = delta.get("stop_reason")
        if reason is None and self._last is None:
            # An output count from before the stop reason is not final.
            self._usage.pop("output_tokens", None)
            self._report.add(usage, is_final=False)
            return Piece()
        known = self._report.add(usage)
        if error := failure_within({}, reason):
            failed = failed_part(error, key=self._key())
            return Piece(failed=failed, is_within=True, reported=known)
        if reason is not None:
            reason = reason or unsaid(has_calls=self._has_calls)
            delta = {**delta, "stop_reason": stop_reason(reason, provider=self._provider)}
        others = {
            name: each for name, each in given.items() if name not in ("usage", *_PARTS) and each
        }
        self._last = {"type": "message_delta", "delta": delta, **(self._last or {}), **others}
        return Piece(size=self._others.size(given, delta), finished=True, reported=known)


def named_event(data: dict[str, Any]) -> bytes:
    """An event of Anthropic's: clients read its name before its data."""
    return b"event: " + str(data["type"]).encode("ascii", "replace") + b"\n" + data_event(data)


def usage_of(kept: dict[str, Any], charged: TokenUsage) -> dict[str, Any]:
    """The provider's usage where it is what is charged, by Anthropic's names, and else the usage charged."""
    counts = {
        "input_tokens": charged.input - charged.cached_input - charged.cache_write,
        "cache_read_input_tokens": charged.cached_input,
        "cache_creation_input_tokens": charged.cache_write,
        "output_tokens": charged.output,
    }
    is_named = all(
        count_of(kept.get(name)) is not None for name in ("input_tokens", "output_tokens")
    )
    if is_named and all(counts[name] == (count_of(kept.get(name)) or 0) for name in counts):
        return kept
    total = {"total_tokens": charged.input + charged.output} if "total_tokens" in kept else {}
    return {**kept, **counts, **total}


def known_blocks(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of an answer that reach callers, with what their server left out."""
    known = [each for each in blocks if each["type"] in BLOCKS]
    for block in known:
        write_empties(block)
    return known


def write_message_head(message: dict[str, Any]) -> None:
    """Writes what every message begins with, where it is missing."""
    if not message.get("id"):
        message["id"] = f"msg_{uuid4().hex[:24]}"
    message["type"], message["role"] = "message", "assistant"


def size_of_blocks(blocks: list[dict[str, Any]]) -> int:
    """The bytes of output in the blocks of an answer."""
    return sum(size_of_part(each) for each in blocks if each["type"] in BLOCKS)


def size_of_part(part: dict[str, Any]) -> int:
    """The bytes of a block of an answer, or of a piece of one, that count as output."""
    return sum(
        text_size(dumps(value, ensure_ascii=False) if name == "input" and value else value)
        for name, value in part.items()
        if name not in _NO_OUTPUT
    )
