"""What the stand-in says: the same words for the same request."""

import json
import re
from dataclasses import dataclass
from itertools import cycle, islice
from secrets import token_hex

from tests.standins.provider.chat import Chat
from tests.standins.provider.samples import sample
from tests.standins.provider.tokens import count, first_pieces, split

QUOTE = 40
CLOSING = (
    " This is the local stand-in, so any déjà vu is intended: the same question always gets the "
    "same answer."
)
FILLER = split(
    " It goes on only because it was asked to: one more word, one more token, and a café crème "
    "at the end → then again from the start."
)
WHITE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool, its arguments (a JSON text) in pieces."""

    identifier: str
    name: str
    arguments: list[str]

    @property
    def tokens(self) -> int:
        """Tokens of the name and of the arguments."""
        return count(self.name) + len(self.arguments)


@dataclass(frozen=True, slots=True)
class Answer:
    """Either text or tool calls, in pieces of one token; `finish` is OpenAI's finish_reason."""

    pieces: list[str]
    calls: list[ToolCall]
    finish: str

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)

    @property
    def tokens(self) -> int:
        """How many tokens are delivered."""
        return len(self.pieces) + sum(call.tokens for call in self.calls)


def compose(chat: Chat) -> Answer:
    """The answer to a request, cut by `stop` and by its limit (plus `overrun`)."""
    most = None if chat.limit is None else chat.limit + chat.directive.overrun
    if _calls_tools(chat):
        return _with_calls(chat, most)
    pieces = _until_stop(_pieces(chat, most), chat.stops)
    over = chat.limit is not None and len(pieces) > chat.limit
    return Answer(pieces[:most], [], "length" if over else "stop")


def _pieces(chat: Chat, most: int | None) -> list[str]:
    if chat.schema is not None:
        value = sample(chat.schema, _subject(chat), param="response_format")
        return split(json.dumps(value, ensure_ascii=False))
    if chat.json_object:
        reply = "".join(_prose(chat, None)).strip()
        return split(json.dumps({"reply": reply, "language": "en"}, ensure_ascii=False))
    return _prose(chat, most if chat.directive.overrun else None)


def _prose(chat: Chat, least: int | None) -> list[str]:
    """The answer in words: exactly `tokens` pieces if the directive says so, or `least` if more."""
    given, wanted = chat.directive.text, chat.directive.tokens
    if given is not None:
        pieces, more = split(given), split(f" {given}")
    else:
        pieces, more = split(_opening(chat) + CLOSING), FILLER
    length = len(pieces) if wanted is None else wanted
    length = max(length, least or 0)
    return [*pieces, *islice(cycle(more), max(0, length - len(pieces)))][:length]


def _opening(chat: Chat) -> str:
    quote = _quote(chat.question if chat.tool_answer is None else chat.tool_answer)
    verb = "You wrote" if chat.tool_answer is None else "The tool answered"
    images = f" It came with {chat.images} image(s)." if chat.images else ""
    return f"{verb}: “{quote}”.{images}" if quote else f"{verb} nothing.{images}"


def _quote(text: str) -> str:
    pieces = first_pieces(text.strip(), QUOTE + 1)
    quote = WHITE.sub(" ", "".join(pieces[:QUOTE]))
    return f"{quote}…" if len(pieces) > QUOTE else quote


def _subject(chat: Chat) -> str:
    """The first text inside JSON: what the directive gives, else the question."""
    if chat.directive.text is None and chat.directive.tokens is None:
        return _quote(chat.question)
    return "".join(_prose(chat, None))


def _until_stop(pieces: list[str], stops: tuple[str, ...]) -> list[str]:
    if not stops:
        return pieces
    text = "".join(pieces)
    ends = [end for end in (text.find(stop) for stop in stops) if end >= 0]
    return split(text[: min(ends)]) if ends else pieces


def _calls_tools(chat: Chat) -> bool:
    """Whether the answer is a tool call: with "auto", to a person's message but not to a tool's."""
    if not chat.tools or chat.tool_choice == "none" or chat.directive.calls == 0:
        return False
    return chat.tool_choice != "auto" or chat.tool_answer is None


def _with_calls(chat: Chat, most: int | None) -> Answer:
    offered = [tool["function"] for tool in chat.tools]
    named = [function for function in offered if function["name"] == chat.tool_choice]
    wanted = chat.directive.calls if chat.parallel else 1
    left = most
    calls: list[ToolCall] = []
    for function in islice(cycle(named or offered), wanted):
        arguments = sample(function.get("parameters") or {}, _subject(chat), param="tools")
        if not isinstance(arguments, dict):
            arguments = {}
        pieces = split(json.dumps(arguments, ensure_ascii=False))
        call = ToolCall(f"call_{token_hex(12)}", function["name"], pieces)
        if left is not None and call.tokens > left:
            room = left - count(call.name)
            cut = [ToolCall(call.identifier, call.name, pieces[:room])] if room >= 0 else []
            return Answer([], [*calls, *cut], "length")
        calls.append(call)
        left = None if left is None else left - call.tokens
    return Answer([], calls, "tool_calls")
