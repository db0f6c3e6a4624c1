"""Reads the events of a streamed response.

Events of known kinds pass in order. Those with a response have the callers' name of its model. The last one
(``response.completed`` or ``response.incomplete``) is held back until the call is settled, and has the usage that was
charged.
"""

import re
import time
from collections import Counter
from functools import lru_cache
from typing import Any

from config.platform.problems.problem import Problem
from config.platform.problems.rendering import openai_error
from config.platform.request.request_id import current as request_id
from llmproxy.dialects.failures import failed_part, failure_of
from llmproxy.dialects.openai.delivered import Delivered
from llmproxy.dialects.openai.response_ends import failure_in, say_what_is_missing
from llmproxy.dialects.openai.response_usage import NO_TEXT, item_size, with_usage
from llmproxy.dialects.passing import (
    OtherTexts,
    drop_costs,
    may_hold_costs,
    text_size,
    without_costs,
)
from llmproxy.dialects.protocol import Piece, ProviderError, TokenUsage, Translator
from llmproxy.dialects.reading import parse_json
from llmproxy.dialects.sse import Event, data_event
from llmproxy.dialects.usage import reported

# Some servers end this API's streams like those of chat completions.
LAST = b"[DONE]"
_INCOMPLETE = "response.incomplete"
_ENDS = frozenset({"response.completed", _INCOMPLETE})
_FAILURES = frozenset({"response.failed", "response.cancelled"})
# The kinds of events that pass: these, and how a thing of a response goes on.
_KINDS = frozenset({
    "keepalive", "response.created", "response.queued", "response.in_progress", *_ENDS, *_FAILURES,
})  # fmt: skip
_THING = re.compile(
    r"response\.(?:output_item|content_part|output_text|output_text\.annotation|refusal|function_call_arguments"
    r"|custom_tool_call_input|reasoning|reasoning_text|reasoning_part|reasoning_summary|reasoning_summary_part"
    r"|reasoning_summary_text|shell_call_command|apply_patch_call_operation_diff)\.[a-z0-9_]+"
)
# The members of an event that are counted by its kind, or are no output, and those of its response.
_MEMBERS = NO_TEXT | frozenset({
    "type", "sequence_number", "response", "output_index", "content_index", "summary_index", "annotation_index",
    "item_id", "item", "part", "annotation", "delta", "text", "refusal", "arguments", "input", "name", "call_id",
    "logprobs", "obfuscation", "status", "command", "command_index", "diff",
})  # fmt: skip


# The text of an event that ends a part.
_TEXTS = ("text", "refusal", "arguments", "input", "diff")


class ResponseTranslator(Translator):
    """The translator of one stream."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # The last response that was shown, the number of the last event, and the event that is held back.
        self._response: dict[str, Any] = {}
        self._number = -1
        self._held: dict[str, Any] = {}
        # The bytes delivered of each item of the output.
        self._sizes: Counter[Any] = Counter()
        self._others = OtherTexts(_MEMBERS)
        self._delivered = Delivered()

    def ending(self, charged: TokenUsage) -> bytes:
        with_usage(self._held["response"], charged)
        return _named(self._held["type"], self._held)

    def failure(self, problem: Problem) -> bytes:
        """The error as OpenAI's SDKs read it, and then the response as failed, as it is at OpenAI."""
        body = openai_error(problem)
        error = {
            "type": "error",
            "sequence_number": self._number + 1,
            **{name: body[name] for name in ("code", "message", "param")},
            "error": {**body, "status": problem.status, "request_id": request_id()},
        }
        failed = {
            "type": "response.failed",
            "sequence_number": self._number + 2,
            "response": {
                **(self._response or _begun(self._called)),
                "status": "failed",
                "error": {"code": body["code"], "message": body["message"]},
            },
        }
        return _named("error", error) + _named("response.failed", failed)

    def _read(self, event: Event, data: bytes) -> Piece:
        data = data.strip()
        if data == LAST:
            # A response that was not completed was cut on the way.
            return Piece(failed=ProviderError())
        given, is_json = parse_json(data)
        if given is None:
            return Piece()
        if not given.get("type") and event.event:
            given["type"], is_json = event.event, False
        kind, response = given.get("type"), given.get("response")
        if kind == "error" or (given.get("error") and "response" not in given):
            known = reported(given.get("usage"))
            return Piece(failed=failure_of(given, key=self._key()), reported=known)
        if not isinstance(kind, str) or not _passes(kind):
            # Events without a kind are not of this API, and break SDKs.
            return Piece()
        self._number = max(self._number, given.get("sequence_number") or 0)
        if error := self._failure(kind, response):
            usage = response.get("usage") if isinstance(response, dict) else None
            return Piece(failed=failed_part(error, key=self._key()), reported=reported(usage))
        return self._passed_on(kind, given, data if is_json else None)

    def _passed_on(self, kind: str, given: dict[str, Any], data: bytes | None) -> Piece:
        """An event for the caller; ``data`` are its bytes where they are JSON for clients."""
        response = given.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        has_costs = (data is None or may_hold_costs(data)) and drop_costs(given)
        is_ordinary = data is not None and not has_costs
        if isinstance(response, dict):
            if usage is not None:
                response["usage"] = without_costs(usage)
            if self._called is not None:
                response["model"] = self._called
            is_head_whole = self._write_head(response)
            is_changed = kind in _ENDS and say_what_is_missing(response)
            is_ordinary = (
                is_ordinary
                and is_head_whole
                and usage is None
                and self._called is None
                and not is_changed
            )
            self._response = response
        elif _THING.fullmatch(kind) and self._delivered.note(kind, given):
            is_ordinary = False
        if kind in _ENDS:
            self._held = given = {**given, "response": self._ended(kind, response)}
        size = self._size(kind, given)
        if kind in _ENDS:
            return Piece(size=size, finished=True, ended=True, reported=reported(usage))
        return Piece(forward=_named(kind, given, data if is_ordinary else None), size=size)

    def _failure(self, kind: str, response: Any) -> Any:
        """The error of a response that has failed, whatever its last event is called; None for others."""
        error = None
        if (kind in _ENDS or kind in _FAILURES) and isinstance(response, dict):
            # An incomplete response may give its reason in an error too.
            error = failure_in(response | {"error": None} if kind == _INCOMPLETE else response)
        return error or ("failed" if kind in _FAILURES else None)

    def _write_head(self, response: dict[str, Any]) -> bool:
        """Writes the id and the output of a response where they are missing, and says whether none was."""
        missing: dict[str, Any] = {}
        if not response.get("id"):
            missing["id"] = self._response.get("id") or made_id()
        if response.get("output") is None:
            missing["output"] = []
        response |= missing
        return not missing

    def _ended(self, kind: str, response: Any) -> dict[str, Any]:
        """The response at its end: as it was shown last where the end has none, and with the items that it forgot."""
        ended = {**(response or self._response or _begun(self._called))}
        if (ended.get("status") or "in_progress") == "in_progress":
            ended["status"] = kind.removeprefix("response.")
        if not sum(map(item_size, ended["output"])):
            ended["output"] = self._delivered.items() or ended["output"]
        return ended

    def _size(self, kind: str, given: dict[str, Any]) -> int:
        """The bytes of output in an event, each of them once, although most come in several events."""
        index, response = given.get("output_index"), given.get("response") or {}
        others = self._others.size(given, response)
        if kind in _ENDS:
            whole = sum(map(item_size, response.get("output") or ()))
            return others + max(0, whole - self._sizes.total())
        if kind.endswith(".delta"):
            size = text_size(given.get("delta"))
        else:
            texts = {name: given.get(name) for name in _TEXTS}
            is_item = kind.startswith("response.output_item.")
            whole = item_size(given["item"] if is_item else given.get("part") or texts)
            size = max(0, whole - self._sizes[index])
        self._sizes[index] += size
        return others + size


@lru_cache(maxsize=256)
def _passes(kind: str) -> bool:
    """Returns whether events of this kind reach callers. Raises ``ValueError`` for what is no name."""
    if not kind.isprintable():
        raise ValueError
    return kind in _KINDS or _THING.fullmatch(kind) is not None


def made_id() -> str:
    """The id of a response whose provider wrote none."""
    return f"resp_{request_id()}"


def _begun(called: str | None) -> dict[str, Any]:
    """A response that failed before the provider showed one."""
    return {
        "id": made_id(),
        "object": "response",
        "created_at": int(time.time()),
        "model": called,
        "output": [],
    }


def _named(kind: str, value: dict[str, Any], data: bytes | None = None) -> bytes:
    """An event with its name; the data as it came, where that is JSON for clients."""
    if data is None or b"\n" in data:
        return b"event: %b\n%b" % (kind.encode(), data_event(value))
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
