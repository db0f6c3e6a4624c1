r"""Faults and unusual shapes on demand.

Written anywhere in the last user message:

    [[stand-in: tokens=200 delay=0.05 fault=reset after=3 text="one \"two\" \u00e9"]]

or in the model's name as a query string, for callers that cannot touch the message:
`stand-in-small?fault=reset&after=3` (the message's members win). Members are separated by white
space; a value with white space in it is a JSON string. An unknown member or value is a 400 with
code `invalid_directive`.

What is answered
    tokens=N             an answer of exactly N tokens (N deltas), unless a limit or `stop` cuts it;
                         for JSON and tool calls, the length of the first text in them
    text=...             this answer; repeated up to `tokens` if both are given
    part=content         or `refusal` or `reasoning`: the member that carries the text
    calls=N              N tool calls where the request leads to one (1)
    overrun=N            disobey: N tokens more than max_tokens allows
When
    first=SECONDS        silence before the first byte of the response
    delay=SECONDS        between two events of a stream; a one-shot answer waits `delay` x tokens
Usage
    prompt_tokens=N, completion_tokens=N, cached_tokens=N, reasoning_tokens=N
                         reported as given; reasoning tokens are added to the completion tokens
                         where these are not given
    usage=never          not even if asked; `zero`: all zeros; `twice`: the usage chunk twice;
                         whether asked or not: `every`: cumulative in each chunk, `last-content`: on
                         the last delta with output, `finish`: on the chunk with finish_reason
Stream
    done=no              no [DONE]
    prelude=yes          first a chunk with empty choices (filter results, as some servers send)
    framing=lf           or `crlf`, `cr`; `nospace`: no space after `data:`; `split`: writes cut
                         inside lines and inside UTF-8 characters; `multiline`: JSON over several
                         `data:` lines; `comments`: comment lines before and inside every event
Faults
    fault=status:429     or any 400 to 599, with `retry_after=SECONDS`, `message=...`, `code=...`
    fault=html           a 502 with an HTML page
    fault=reset          the connection is reset (RST)
    fault=cut            closed without the end of the HTTP body
    fault=truncate       HTTP ends cleanly, without finish_reason and [DONE]
    fault=stall          silence for ever
    fault=malformed      an event that is not JSON, then the rest as usual
    fault=gigantic       an event of `mib=N` MiB (8), then the rest as usual
    fault=error-event    `data: {"error": ...}`, then the end (`message`, `code` as above)
    after=N              a stream's fault comes after N events (0: headers alone; the first event
                         has the role, no token), or before [DONE] if there are fewer

The same faults in a one-shot answer: `reset`, `cut` and `stall` come before any byte, or with
`after` above 0 in the middle of the body; `truncate` and `malformed` send half the JSON under a
right length, `gigantic` a content of N MiB, `error-event` the error object with status 200.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from tests.standins.provider.failures import ApiError

OPENING = "[[stand-in:"
DIRECTIVE = re.compile(r'\[\[stand-in:((?:"(?:[^"\\]|\\.)*"|[^"\]]|\](?!\]))*)\]\]')
MEMBER = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"]+)(?:\s+|$)')
HOUR = 3600
PARTS = ("content", "refusal", "reasoning")
USAGES = ("asked", "never", "twice", "zero", "every", "last-content", "finish")
FRAMINGS = ("lf", "crlf", "cr", "nospace", "split", "multiline", "comments")
FAULTS = (
    "html",
    "reset",
    "cut",
    "truncate",
    "stall",
    "malformed",
    "gigantic",
    "error-event",
)


@dataclass(frozen=True, slots=True)
class Directive:
    """What one request asks of the stand-in beside its answer; the defaults are a good provider."""

    tokens: int | None = None
    text: str | None = None
    part: str = "content"
    calls: int = 1
    overrun: int = 0
    first: float = 0.0
    delay: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    usage: str = "asked"
    done: bool = True
    prelude: bool = False
    framing: str = "lf"
    fault: str | None = None
    after: int = 0
    retry_after: str | None = None
    message: str | None = None
    code: str | None = None
    mib: int = 8

    @property
    def status(self) -> int | None:
        """The HTTP status that `fault=status:NNN` asks for."""
        if self.fault is None or not self.fault.startswith("status:"):
            return None
        return int(self.fault.removeprefix("status:"))


def read_directive(message: str, query: str) -> tuple[Directive, str]:
    """The directive in a message and in a model's query string, and the message without it."""
    members = dict(_query_members(query))
    found = DIRECTIVE.search(message)
    if found is None:
        if OPENING in message:
            raise _invalid("it has no end, or a quote in it is left open", "messages")
        return Directive(**members), message
    members.update(_message_members(found.group(1)))
    return Directive(**members), message[: found.start()] + message[found.end() :]


def _message_members(text: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    rest = text.strip()
    position = 0
    while position < len(rest):
        found = MEMBER.match(rest, position)
        if found is None:
            raise _invalid(f"character {position + 1} starts no member=value", "messages")
        name, value = found.groups()
        members[name] = _value(name, _unquoted(name, value), "messages")
        position = found.end()
    return members


def _query_members(query: str) -> dict[str, Any]:
    if not query:
        return {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise _invalid("the model's query string cannot be read", "model") from None
    return {name: _value(name, value, "model") for name, value in pairs}


def _unquoted(name: str, value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value, strict=False))
    except ValueError:
        raise _invalid(f"the text of {name!r} is no JSON string", "messages") from None


def _value(name: str, value: str, param: str) -> object:
    read = READERS.get(name)
    if read is None:
        raise _invalid(f"there is no member {name!r}", param)
    try:
        return read(value)
    except ValueError:
        raise _invalid(f"{name!r} cannot have that value", param) from None


def _invalid(why: str, param: str) -> ApiError:
    return ApiError(
        400, f"Invalid stand-in directive: {why}.", param=param, code="invalid_directive"
    )


def _whole(most: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        number = int(value)
        if not 0 <= number <= most:
            raise ValueError
        return number

    return read


def _seconds(value: str) -> float:
    number = float(value)
    if not 0 <= number <= HOUR:
        raise ValueError
    return number


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in choices:
            raise ValueError
        return value

    return read


def _yes_or_no(value: str) -> bool:
    return {"yes": True, "no": False}[_one_of("yes", "no")(value)]


def _fault(value: str) -> str:
    kind, _, status = value.partition(":")
    if kind == "status" and 400 <= int(status) <= 599:
        return f"status:{int(status)}"
    return _one_of(*FAULTS)(value)


def _header(value: str) -> str:
    if not (value.isascii() and value.isprintable()):
        raise ValueError
    return value


MANY = 10_000_000
READERS: dict[str, Callable[[str], object]] = {
    "tokens": _whole(1_000_000),
    "text": str,
    "part": _one_of(*PARTS),
    "calls": _whole(128),
    "overrun": _whole(1_000_000),
    "first": _seconds,
    "delay": _seconds,
    "prompt_tokens": _whole(MANY),
    "completion_tokens": _whole(MANY),
    "cached_tokens": _whole(MANY),
    "reasoning_tokens": _whole(MANY),
    "usage": _one_of(*USAGES),
    "done": _yes_or_no,
    "prelude": _yes_or_no,
    "framing": _one_of(*FRAMINGS),
    "fault": _fault,
    "after": _whole(1_000_000),
    "retry_after": _header,
    "message": str,
    "code": str,
    "mib": _whole(256),
}
