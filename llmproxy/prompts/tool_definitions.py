"""Tools as OpenAI's models see them: each function and parameter on a line of its own.

The frames are those of OpenAI's guide to counting tokens (``num_tokens_for_tools``), which covers parameters without
parameters of their own. Nested ones count alike here, and keywords that the guide does not know count as JSON.
"""

from collections.abc import Iterable, Iterator
from json import JSONEncoder
from typing import Any, NamedTuple

FUNCTION_FRAME = {"o200k_base": 7, "cl100k_base": 10}
PARAMETERS_FRAME = 3
PARAMETER_FRAME = 3
ENUM_FRAME = -3
ENUM_VALUE_FRAME = 3
TOOLS_FRAME = 12
# More values are written as one text, which takes a tenth of the time and a few tokens more.
MOST_ENUM_VALUES = 1000
_json = JSONEncoder(ensure_ascii=False).encode
# Keywords that are on the line of a parameter or not in the prompt.
_KNOWN = frozenset({
    "type", "description", "enum", "properties", "items", "required", "additionalProperties", "$schema", "title",
})  # fmt: skip


class _Part(NamedTuple):
    """Tokens that are no text, and a text."""

    frame: int
    text: str = ""


def frames_and_texts(tools: Iterable[dict[str, Any]], *, tokenizer: str) -> tuple[int, list[str]]:
    """The tokens that are no text, and the texts, of all tools of a valid call."""
    parts = [_Part(TOOLS_FRAME)]
    for tool in tools:
        function = tool.get("function") or tool["custom"]
        line = f"{function['name']}:{_described(function)}"
        parts.append(_Part(FUNCTION_FRAME[tokenizer], line))
        parts += _schema(function.get("parameters") or {})
        if function.get("format"):
            parts.append(_Part(0, _text(function["format"])))
    return sum(part.frame for part in parts), [part.text for part in parts]


def _schema(schema: dict[str, Any]) -> Iterator[_Part]:
    """The values and parameters of a schema, which the caller may have written in any way."""
    if isinstance(values := schema.get("enum"), list):
        yield _Part(ENUM_FRAME)
        if len(values) > MOST_ENUM_VALUES:
            yield _Part(ENUM_VALUE_FRAME * len(values), _text(values))
        else:
            yield from (_Part(ENUM_VALUE_FRAME, _text(value)) for value in values)
    properties = schema.get("properties")
    if properties and isinstance(properties, dict):
        yield _Part(PARAMETERS_FRAME)
        for name, each in properties.items():
            nested = each if isinstance(each, dict) else {}
            yield _Part(
                PARAMETER_FRAME, f"{name}:{_text(nested.get('type', ''))}:{_described(nested)}"
            )
            yield from _schema(nested)
    if isinstance(items := schema.get("items"), dict):
        yield _Part(PARAMETER_FRAME, f"{_text(items.get('type', ''))}:{_described(items)}")
        yield from _schema(items)
    if rest := {name: value for name, value in schema.items() if name not in _KNOWN}:
        yield _Part(0, _text(rest))


def _described(given: dict[str, Any]) -> str:
    return _text(given.get("description") or "").removesuffix(".")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)
