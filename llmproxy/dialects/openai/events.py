"""Reads the chunks of a streamed chat completion.

An ordinary chunk is forwarded as it came. One is rewritten where its model has another name for callers, where it
has usage, a role that was said before, or a text in parts, and where its bytes are no JSON for clients.
"""

from collections import defaultdict
from typing import Any, cast

from llmproxy.dialects.chat_answers import DONE, ChatTranslator
from llmproxy.dialects.ends import finish_reason
from llmproxy.dialects.failures import failed_choice, failed_part, failure_of, is_failure
from llmproxy.dialects.openai.choices import delta_of
from llmproxy.dialects.openai.texts import NO_TEXT, plain_size
from llmproxy.dialects.openai.tool_calls import CallNumbers
from llmproxy.dialects.openai.usage import usage_for_caller
from llmproxy.dialects.passing import OtherTexts, drop_costs, may_hold_costs
from llmproxy.dialects.protocol import Piece, ProviderError, TokenUsage
from llmproxy.dialects.reading import parse_json, size_of, usage_of
from llmproxy.dialects.sse import Event, data_event
from llmproxy.dialects.usage import Report

LAST = b"[DONE]"
# The members that all chunks of one answer share.
_HEAD = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
# The objects of a chunk that has no more than a text.
_OBJECTS = 3
# The names in a chunk, its choice and its delta that say nothing of an error or a cost, and whose values are no output.
_PLAIN_CHUNK = frozenset({*_HEAD, "choices", "usage", "obfuscation"})
_PLAIN_CHOICE = frozenset({"index", "delta", "logprobs", "finish_reason"})
_PLAIN_DELTA = frozenset({"content"})
# Other servers' names for their chunks.
_OTHER_FORMS = frozenset({"chat.completion", "text_completion"})


class EventTranslator(ChatTranslator):
    """The translator of one stream."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._name = {} if self._called is None else {"model": self._called}
        # The last chunk, and the last usage of any chunk with what it reports.
        self._chunk: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._known: TokenUsage | None = None
        self._report = Report()
        # Members beside the usage in chunks without choices, for the next chunk that is forwarded.
        self._beside: dict[str, Any] = {}
        self._others = OtherTexts(NO_TEXT)
        # The names in the last chunk that was a text and nothing else.
        self._names: tuple[str, ...] = ()
        # The choices whose role was said.
        self._spoken: set[Any] = set()
        # Some part of the answer has come.
        self._has_begun = False
        # Those that have spoken by deltas, those that do by messages, and the calls of tools of each.
        self._by_deltas: set[Any] = set()
        self._by_messages: set[Any] = set()
        self._calls: defaultdict[Any, CallNumbers] = defaultdict(CallNumbers)

    def ending(self, charged: TokenUsage) -> bytes:
        return (self._usage_chunk(charged) if self._include_usage else b"") + DONE

    def _usage_chunk(self, known: TokenUsage) -> bytes:
        head = {name: self._chunk[name] for name in _HEAD if name in self._chunk}
        # The provider's usage has more members than ours; ours counts where it reported none or another.
        usage = usage_of(known)
        if self._known == known:
            usage |= usage_for_caller(self._usage, known)
        return data_event({**self._beside, **head, **self._name, "choices": [], "usage": usage})

    def _read(self, event: Event, data: bytes) -> Piece:
        data = data.strip()
        if data == LAST:
            # An answer without a reason for its end was cut on the way.
            return Piece(ended=self._finished, failed=None if self._finished else ProviderError())
        chunk, is_json = parse_json(data)
        if not chunk:
            return Piece()
        text = self._text_of(chunk, data) if is_json and event.event is None else None
        if text is not None:
            self._chunk = chunk
            size = size_of(text)
            return Piece(_as_it_came(event, data), size, is_text=size > 0)
        choices = chunk.get("choices")
        return self._failed(event, chunk, choices) or self._passed_on(
            event, data, chunk, is_json=is_json
        )

    def _failed(self, event: Event, chunk: dict[str, Any], choices: Any) -> Piece | None:
        """Returns the failure that an event reports, if it is no chunk of an answer."""
        is_chunk = isinstance(choices, list)
        if chunk.get("error") or event.event == "error" or (not is_chunk and is_failure(chunk)):
            known = self._add(chunk.get("usage"))
            failed = failure_of(chunk, key=self._key())
            return Piece(failed=failed, is_within=is_chunk and self._has_begun, reported=known)
        if not is_chunk:
            # Events of other kinds (some servers send a ping) are no chunks, and break SDKs.
            return Piece(reported=self._add(chunk.get("usage")))
        if error := failed_choice(choices):
            failed = failed_part(error, key=self._key())
            known = self._add(_taken_usage(chunk, choices))
            return Piece(failed=failed, is_within=True, reported=known)
        return None

    def _passed_on(
        self, event: Event, data: bytes, chunk: dict[str, Any], *, is_json: bool
    ) -> Piece:
        choices = chunk["choices"]
        self._chunk = chunk
        size, finished, is_plain = self._read_deltas(choices)
        usage = _taken_usage(chunk, choices)
        known = None if usage is None else self._add(usage)
        is_ordinary = is_json and is_plain and usage is None and not self._name
        if may_hold_costs(data) and drop_costs(chunk):
            is_ordinary = False
        if chunk.get("object") in _OTHER_FORMS:
            # SDKs skip what says that it is no chunk.
            chunk["object"], is_ordinary = "chat.completion.chunk", False
        # A chunk without a choice has the usage, or what Azure's filter says of the prompt. Users of SDKs read the
        # first choice of each chunk, so it is not for callers: the next chunk says the same, and the usage comes at the
        # end to those that want it.
        if not choices:
            beside = chunk.keys() - {*_HEAD, "choices"}
            self._beside |= {name: chunk[name] for name in beside if chunk[name] is not None}
            return Piece(reported=known)
        self._has_begun = True
        if self._beside:
            chunk, self._beside, is_ordinary = {**self._beside, **chunk}, {}, False
        forward = _as_it_came(event, data) if is_ordinary else data_event({**chunk, **self._name})
        size += self._others.size(chunk, *choices)
        is_text = size > 0 and not finished and known is None
        return Piece(forward, size, finished=finished, reported=known, is_text=is_text)

    def _text_of(self, chunk: dict[str, Any], data: bytes) -> str | None:
        """The text of a chunk that has nothing else to be read: one choice, a delta with a content, known members.

        Nearly all chunks are such; they are recognised by their names and the number of their objects.
        """
        if self._name or self._beside or self._by_messages or data.count(b"{") > _OBJECTS:
            return None
        try:
            (choice,) = chunk["choices"]
            delta = choice["delta"]
            text = delta["content"]
            names = (*chunk, "", *choice, "", *delta)
        except (KeyError, TypeError, ValueError):
            return None
        if names != self._names:
            is_plain = _PLAIN_CHUNK.issuperset(chunk) and _PLAIN_CHOICE.issuperset(choice)
            if not is_plain or not _PLAIN_DELTA.issuperset(delta):
                return None
            self._names = names
        is_text = isinstance(text, str) and choice.get("finish_reason") is None
        if not is_text or chunk.get("usage") is not None or chunk.get("object") in _OTHER_FORMS:
            return None
        self._has_begun = True
        if text:
            self._by_deltas.add(choice.get("index") or 0)
        return cast("str", text)

    def _read_deltas(self, choices: list[dict[str, Any]]) -> tuple[int, bool, bool]:
        """The size of the deltas, whether one has the finish reason, and whether all were plain, as they are now."""
        size, finished, is_plain = 0, False, True
        for choice in choices:
            delta = choice.get("delta")
            # One answer is asked for.
            index = choice.get("index") or 0
            if not delta:
                said = delta_of(choice, has_spoken=index in self._by_deltas)
                if delta is None or said is not None:
                    # Azure's filter speaks without one, and SDKs read it.
                    delta = choice["delta"] = said or {}
                    is_plain = False
                if said is not None:
                    self._by_messages.add(index)
            delta_size, was_plain = plain_size(delta)
            if delta_size and index not in self._by_messages:
                self._by_deltas.add(index)
            size, is_plain = size + delta_size, is_plain and was_plain
            if delta.get("tool_calls") and self._calls[index].write(delta["tool_calls"]):
                is_plain = False
            if delta.get("role") and self._repeats_its_role(choice, delta):
                is_plain = False
            if reason := choice.get("finish_reason"):
                self._finished = finished = True
                choice["finish_reason"] = finish_reason(reason, provider=self._provider)
                is_plain = is_plain and choice["finish_reason"] == reason
            elif reason is not None:
                # An empty word says that the answer goes on, which clients read as an end of no known kind.
                choice["finish_reason"], is_plain = None, False
        return size, finished, is_plain

    def _repeats_its_role(self, choice: dict[str, Any], delta: dict[str, Any]) -> bool:
        """Returns whether a role was said before. Some servers repeat it in each delta; SDKs concatenate them."""
        index = choice.get("index") or 0
        if index in self._spoken:
            del delta["role"]
            return True
        self._spoken.add(index)
        return False

    def _add(self, usage: Any) -> TokenUsage | None:
        known = self._report.add(usage)
        if known is not None:
            self._usage, self._known = usage, known
        return known


def _taken_usage(chunk: dict[str, Any], choices: list[dict[str, Any]]) -> Any:
    """Takes the usage out of a chunk."""
    usage = chunk.pop("usage", None)
    for choice in choices:
        if choice.get("usage"):
            # Moonshot reports here.
            within = choice.pop("usage")
            usage = usage or within
    return usage


def _as_it_came(event: Event, data: bytes) -> bytes:
    """The event with its data alone: a byte order mark, a comment or a field beside it is not for the caller."""
    plain = b"data: %b\n\n" % data
    return event.raw if event.raw == plain else plain[:-2].replace(b"\n", b" ") + b"\n\n"
