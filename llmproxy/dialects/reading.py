"""Parses what is common to all providers: JSON, token counts, and sizes of texts."""

from json import JSONDecoder
from math import isfinite
from typing import Any

import orjson

from llmproxy.dialects.protocol import TokenUsage, TooDeep

# A larger count is a mistake and treated as missing.
MOST_TOKENS = 1_000_000_000
# An answer that nests deeper is not read, so that no walk depends on the stack; ``orjson`` writes 254 levels.
MOST_LEVELS = 200
# Python reads no longer integers in a reasonable time.
MOST_DIGITS = 4_000


def parse_json(data: bytes) -> tuple[Any, bool]:
    """Parses JSON leniently; returns the value and whether the bytes are valid JSON for callers.

    Some servers send halves of a surrogate pair in two pieces, which is still JSON; some send NaN or infinity, which is
    not, and becomes null. Others send such a half as bytes, a byte order mark, control characters within a text, or
    bytes that are no UTF-8, which clients do not read. Integers beyond 64 bits lose digits. Raises ``ValueError``, of
    which ``TooDeep`` is one.
    """
    try:
        return _shallow(orjson.loads(data), data), True
    except orjson.JSONDecodeError:
        pass
    text, is_json = (
        _text_of(data),
        data.isascii() and b"NaN" not in data and b"Infinity" not in data,
    )
    try:
        value = _decode_strictly(text)
    except ValueError:
        value, is_json = parse_json_exactly(data), False
    except RecursionError:
        raise TooDeep from None
    return _shallow(value, data), is_json


def parse_json_exactly(data: bytes) -> Any:
    """Parses JSON leniently, with integers of up to ``MOST_DIGITS``; longer ones become null."""
    try:
        return _shallow(_decode(_text_of(data)), data)
    except RecursionError:
        raise TooDeep from None


def _shallow(value: Any, data: bytes) -> Any:
    """A value that was parsed from these bytes, unless it nests too deep."""
    # Most answers have fewer brackets than that.
    if data.count(b"{") + data.count(b"[") > MOST_LEVELS and isinstance(value, dict | list):
        level = [value]
        for _ in range(MOST_LEVELS):
            level = [
                child
                for each in level
                for child in (each.values() if isinstance(each, dict) else each)
                if isinstance(child, dict | list)
            ]
            if not level:
                return value
        raise TooDeep
    return value


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= MOST_DIGITS else None


def _text_of(data: bytes) -> str:
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # A character that a server has cut in two; streams of events are decoded so.
        text = data.decode("utf-8", "replace")
    return text.removeprefix("\ufeff")


def _finite(digits: str) -> float | None:
    return number if isfinite(number := float(digits)) else None


_decode, _decode_strictly = (
    JSONDecoder(
        parse_constant=lambda _: None, parse_float=_finite, parse_int=_integer, strict=is_strict
    ).decode
    for is_strict in (False, True)
)


def usage_of(known: TokenUsage) -> dict[str, Any]:
    """Token usage in OpenAI's shape."""
    written = {"cache_write_tokens": known.cache_write} if known.cache_write else {}
    return {
        "prompt_tokens": known.input,
        "completion_tokens": known.output,
        "total_tokens": known.input + known.output,
        "prompt_tokens_details": {"cached_tokens": known.cached_input, **written},
        "completion_tokens_details": {"reasoning_tokens": known.reasoning},
    }


def count_of(value: Any) -> int | None:
    """A count of tokens, which some servers write as 5.0; None for anything else."""
    value = whole(value)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return value if is_count else None


def whole(value: Any) -> Any:
    """A value whose whole numbers are integers, also those within it."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    return [whole(each) for each in value] if isinstance(value, list) else value


def size_of(text: str) -> int:
    """The bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
