"""Members of a provider's answer that reach callers: all but the operator's costs.

Its known events and blocks pass with all their members. What passes counts as output, where it is not known to be
something else: a text in a member that nobody has heard of was delivered like any other.
"""

import re
from itertools import repeat
from typing import Any

import orjson

from llmproxy.dialects.reading import parse_json, size_of

_COST = re.compile("cost|price|billing", re.IGNORECASE)
# Further names within a usage, which is nothing but counts and costs.
_COST_IN_USAGE = re.compile("cost|price|billing|billed|byok|credit", re.IGNORECASE)
# Members that the model or the caller wrote: names within are their own.
_WRITTEN = frozenset({"input", "arguments", "action", "operation", "tools", "text"})
# Sources that a server found for an answer, by any server's name: they have no part in its tokens, and may come in
# every event.
_SOURCES = frozenset({
    "citations", "citation", "annotations", "annotation", "search_results", "sources", "images", "videos",
    "related_questions",
})  # fmt: skip
# Text in the names of an unknown member counts beyond this length.
_LONGEST_NAME = 64


def may_hold_costs(data: bytes) -> bool:
    """Returns whether JSON may name a cost or a usage: quick, and never wrong if it says no."""
    data = data.lower()
    return (
        b"cost" in data
        or b"price" in data
        or b"billing" in data
        # Chunks name the usage that only the last of them has.
        or data.count(b'"usage"') > data.count(b'"usage":null')
        # An escaped letter.
        or b"\\u00" in data
    )


def drop_costs(value: Any) -> bool:
    """Takes out what an answer cost the operator, at any depth, and says whether there was something."""
    if isinstance(value, list):
        # Embeddings are lists of thousands of numbers.
        within = [drop_costs(each) for each in value if isinstance(each, dict | list)]
        return any(within)
    if not isinstance(value, dict):
        return False
    denied = [name for name in value if name == "usage" or _COST.search(name)]
    for name in denied:
        del value[name]
    within = [drop_costs(each) for name, each in value.items() if name not in _WRITTEN]
    return bool(denied) or any(within)


def without_costs(usage: Any) -> Any:
    """A provider's usage for callers, who hear of no cost at any level."""
    if isinstance(usage, list):
        return [without_costs(each) for each in usage]
    if not isinstance(usage, dict):
        return usage
    kept = {name: each for name, each in usage.items() if not _COST_IN_USAGE.search(name)}
    return {name: without_costs(each) for name, each in kept.items() if name != "usage"}


def text_size(value: Any) -> int:
    """The bytes of all texts in a value."""
    if isinstance(value, str):
        return size_of(value)
    if isinstance(value, list):
        return sum(map(text_size, value))
    if isinstance(value, dict):
        return sum(max(0, len(name) - _LONGEST_NAME) + text_size(value[name]) for name in value)
    return 0


def sources_size(data: bytes) -> int:
    """The bytes of an event's sources, whose length no output limit bounds."""
    size = 0
    try:
        left = [parse_json(data)[0]]
        while left:
            value = left.pop()
            if isinstance(value, dict):
                size += sum(len(orjson.dumps(value[name])) for name in _SOURCES & value.keys())
                left += [each for name, each in value.items() if name not in _SOURCES]
            elif isinstance(value, list):
                left += value
    except (ValueError, TypeError):
        return 0
    return size


class AsItCame:
    """A part of an answer that passes as the JSON that its provider wrote."""

    __slots__ = ("json",)

    def __init__(self, json: bytes) -> None:
        self.json = json


class OtherTexts:
    """Counts the texts of an answer in members that are not known as its text or as something else.

    What comes again is no output: servers write such members into every event of a stream.
    """

    def __init__(self, known: frozenset[str]) -> None:
        self._known = known
        self._last: dict[str, Any] = {}

    def size(self, *objects: dict[str, Any]) -> int:
        """The bytes of these texts in an event or answer, given as the objects that have such members."""
        size = 0
        for members in objects:
            if not self._known.issuperset(members):
                size += sum(map(self._size, members.keys() - self._known, repeat(members)))
        return size

    def _size(self, name: str, members: dict[str, Any]) -> int:
        if self._last.get(name) == members[name]:
            return 0
        self._last[name] = members[name]
        return text_size({name: members[name]})
