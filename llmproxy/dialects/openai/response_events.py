"""Reads the events of a streamed response.

Events of the kinds in a list pass in order, with the members in a list; all do where an operator opened them. Those
with a response say the callers' name of its model. The last one (``response.completed`` or ``response.incomplete``) is
held back until the call is settled, and has the usage that was charged.
"""

import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from config.api.handlers import openai_error
from config.api.problems import Problem
from config.middleware.request_id import current as request_id
from llmproxy.dialects.failures import failure_of
from llmproxy.dialects.openai.listed import EVENT, RESPONSE, drop, is_listed_kind
from llmproxy.dialects.openai.response_usage import item_size, reported, with_usage
from llmproxy.dialects.openai.usage import listed
from llmproxy.dialects.protocol import KEEP_ALIVE, Piece, ProviderError, TokenUsage
from llmproxy.dialects.reading import parse_json, size_of
from llmproxy.dialects.sse import Event, data_event

# Some servers end this API's streams like those of chat completions.
LAST = b"[DONE]"
_ENDS = frozenset({"response.completed", "response.incomplete"})
# A kind with a line break would be an event of its own.
_KIND = re.compile(r"[a-z0-9_.]+")


class ResponseTranslator:
    """The translator of one stream."""

    def __init__(
        self, *, key: Callable[[], str], called: str | None, passes_all: bool = False
    ) -> None:
        self._key = key
        self._called = called
        self._passes_all = passes_all
        # The last response that was shown, the number of the last event, and the event that is held back.
        self._response: dict[str, Any] = {}
        self._number = -1
        self._held: dict[str, Any] = {}
        # The bytes delivered of each item of the output.
        self._sizes: Counter[Any] = Counter()

    def piece(self, event: Event) -> Piece:
        if event.data is None:
            # A comment shows that the provider is alive, which becomes our own keep-alive.
            return Piece(forward=KEEP_ALIVE if event.raw.lstrip().startswith(b":") else b"")
        data = event.data.strip()
        if data == LAST:
            # A response that was not completed was cut on the way.
            return Piece(failed=ProviderError())
        try:
            given, is_json = parse_json(data)
            return self._piece(given, data if is_json else None)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return Piece(failed=ProviderError())

    def ending(self, charged: TokenUsage) -> bytes:
        with_usage(self._held["response"], charged)
        return _named(self._held["type"], self._held)

    def failure(self, problem: Problem) -> bytes:
        """The error as OpenAI's SDKs read it, and then the response as failed, as it is at OpenAI."""
        told = openai_error(problem)
        error = {
            "type": "error",
            "sequence_number": self._number + 1,
            **{name: told[name] for name in ("code", "message", "param")},
            "error": {**told, "status": problem.status, "request_id": request_id()},
        }
        failed = {
            "type": "response.failed",
            "sequence_number": self._number + 2,
            "response": {
                **(self._response or _begun(self._called)),
                "status": "failed",
                "error": {"code": told["code"], "message": told["message"]},
            },
        }
        return _named("error", error) + _named("response.failed", failed)

    def _piece(self, given: dict[str, Any], data: bytes | None) -> Piece:
        kind = given.get("type")
        if kind == "error" or (given.get("error") and "response" not in given):
            return Piece(failed=failure_of(given, key=self._key()))
        if not isinstance(kind, str) or not self._passes(kind):
            # Events without a kind are not of this API, and break SDKs.
            return Piece()
        self._number = max(self._number, given.get("sequence_number") or 0)
        response = given.get("response")
        if kind == "response.failed":
            failed = failure_of({"error": response["error"] or {}}, key=self._key())  # type: ignore[index]
            return Piece(failed=failed, reported=reported(response.get("usage")))  # type: ignore[union-attr]
        if not self._passes_all and not EVENT.issuperset(given):
            drop(given, EVENT)
            data = None
        if isinstance(response, dict):
            data = self._shown(response, data)
        if kind in _ENDS:
            self._held = {**given, "response": self._response}
            return Piece(finished=True, ended=True, reported=reported(self._response.get("usage")))
        return Piece(forward=_named(kind, given, data), size=self._size(kind, given))

    def _passes(self, kind: str) -> bool:
        """Whether events of this kind reach callers. Raises ``ValueError`` for what is no name."""
        if not _KIND.fullmatch(kind):
            raise ValueError
        return self._passes_all or is_listed_kind(kind)

    def _shown(self, response: dict[str, Any], data: bytes | None) -> bytes | None:
        """Makes a response one for callers; returns the bytes of its event, None where they have changed."""
        if not self._passes_all and not RESPONSE.issuperset(response):
            drop(response, RESPONSE)
            data = None
        if isinstance(usage := response.get("usage"), dict):
            response["usage"] = listed(usage, passes_all=self._passes_all)
            data = None
        if self._called is not None:
            response["model"] = self._called
            data = None
        self._response = response
        return data

    def _size(self, kind: str, given: dict[str, Any]) -> int:
        """The bytes of output in an event, each of them once, although most come in several events."""
        index = given.get("output_index")
        if kind.endswith(".delta"):
            delta = given.get("delta")
            size = size_of(delta) if isinstance(delta, str) else 0
        elif kind in {"response.output_item.added", "response.output_item.done"}:
            size = max(0, item_size(given["item"]) - self._sizes[index])
        else:
            return 0
        self._sizes[index] += size
        return size


def _begun(called: str | None) -> dict[str, Any]:
    """A response that failed before the provider showed one."""
    return {
        "id": f"resp_{request_id()}",
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
