"""Passes on the events of a streamed message; the last two wait for the settlement.

Token counts are cumulative: the last value of each field counts. The start of a message reports the prompt's tokens
only; an output count is final once the message has its stop reason. So the last ``message_delta`` says what is charged.
"""

import re
from collections.abc import Callable
from json import dumps
from typing import Any

from config.api.handlers import anthropic_error
from config.api.problems import Problem
from config.middleware.request_id import current as request_id
from llmproxy.dialects.anthropic.answer import prompt, reported
from llmproxy.dialects.anthropic.usage import listed, usage_of
from llmproxy.dialects.failures import failure_of
from llmproxy.dialects.protocol import KEEP_ALIVE, Piece, ProviderError, TokenUsage
from llmproxy.dialects.reading import parse_json, size_of, without_costs
from llmproxy.dialects.sse import Event, data_event

_MESSAGE_MEMBERS = frozenset(
    {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
)
_DELTA_MEMBERS = frozenset({"stop_reason", "stop_sequence", "stop_details"})
_LAST_MEMBERS = frozenset({"context_management"})
# A kind with a line break would be an event of its own.
_KIND = re.compile(r"[a-z0-9_.]+")
# What a model said, by the kind of a block or of a piece.
_TEXTS = {
    "text": "text",
    "text_delta": "text",
    "thinking": "thinking",
    "thinking_delta": "thinking",
    "redacted_thinking": "data",
    "input_json_delta": "partial_json",
}
_STOP = {"type": "message_stop"}


class MessageTranslator:
    """The translator of one stream. It skips events of unknown kinds, unless an operator has opened the provider."""

    def __init__(
        self, *, key: Callable[[], str], called: str | None, passes_all: bool = False
    ) -> None:
        self._key = key
        self._called = called
        self._passes_all = passes_all
        self._begun = False
        # The event with the stop reason, and the usage so far.
        self._last: dict[str, Any] | None = None
        self._usage: dict[str, Any] = {}

    def piece(self, event: Event) -> Piece:
        if event.data is None:
            # A comment shows that the provider is alive, which becomes our own keep-alive.
            return Piece(forward=KEEP_ALIVE if event.raw.lstrip().startswith(b":") else b"")
        try:
            data, is_json = parse_json(event.data)
            kind = data["type"]
            raw = event.raw if is_json and event.event == kind else named_event(data)
            return self._piece(kind, data, raw)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return Piece(failed=ProviderError())

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

    def _piece(self, kind: str, data: dict[str, Any], raw: bytes) -> Piece:
        piece = Piece()
        match kind:
            case "message_start":
                piece = self._start(data["message"])
            case "content_block_start":
                piece = self._block(raw, data["content_block"])
            case "content_block_delta":
                piece = self._block(raw, data["delta"])
            case "content_block_stop":
                piece = self._block(raw, None)
            case "message_delta":
                piece = self._message_delta(data)
            case "message_stop":
                # A message without its stop reason was cut on the way.
                failed = None if self._last is not None else ProviderError()
                piece = Piece(ended=failed is None, failed=failed)
            case "error":
                piece = Piece(failed=failure_of(data, key=self._key()))
            case "ping":
                # Before the message it would count as the beginning of an answer.
                piece = Piece(forward=raw if self._begun else KEEP_ALIVE)
            case _ if self._passes_all and self._begun and _KIND.fullmatch(kind):
                piece = Piece(forward=named_event(without_costs(data)))
        return piece

    def _start(self, message: dict[str, Any]) -> Piece:
        self._begun = True
        self._merge_usage(message.get("usage"))
        kept = self._listed(message, _MESSAGE_MEMBERS)
        kept["model"] = self._called or message["model"]
        # Clients read the prompt's tokens here, and an output count that is no more than a beginning.
        kept["usage"] = {"input_tokens": 0, "output_tokens": 0, **self._usage}
        self._usage.pop("output_tokens", None)
        forward = named_event({"type": "message_start", "message": kept})
        return Piece(forward=forward, prompt=prompt(self._usage))

    def _block(self, raw: bytes, part: dict[str, Any] | None) -> Piece:
        if not self._begun:
            raise ValueError
        return Piece(forward=raw, size=0 if part is None else size_of_part(part))

    def _message_delta(self, data: dict[str, Any]) -> Piece:
        self._merge_usage(data.get("usage"))
        delta = data.get("delta") or {}
        if delta.get("stop_reason") is None and self._last is None:
            # An output count from before the stop reason is not final.
            self._usage.pop("output_tokens", None)
            return Piece()
        known = reported(self._usage) if data.get("usage") else None
        if self._last is None:
            self._last = {"type": "message_delta", "delta": self._listed(delta, _DELTA_MEMBERS)}
        others = self._listed({**data, "delta": None, "usage": None}, _LAST_MEMBERS)
        self._last |= {name: value for name, value in others.items() if value}
        return Piece(finished=True, reported=known)

    def _merge_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            kept = listed(usage, passes_all=self._passes_all)
            self._usage |= {name: value for name, value in kept.items() if value is not None}

    def _listed(self, members: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
        return {name: value for name, value in members.items() if self._passes_all or name in names}


def named_event(data: dict[str, Any]) -> bytes:
    """An event of Anthropic's: clients read its name before its data."""
    return b"event: " + str(data["type"]).encode("ascii", "replace") + b"\n" + data_event(data)


def size_of_part(part: dict[str, Any]) -> int:
    """The bytes of a block of an answer, or of a piece of one, that count as output."""
    kind = part["type"]
    if kind == "tool_use":
        given = dumps(part["input"], ensure_ascii=False) if part.get("input") else ""
        return size_of(part["name"]) + size_of(given)
    member = _TEXTS.get(kind)
    return size_of(part[member] or "") if member else 0
