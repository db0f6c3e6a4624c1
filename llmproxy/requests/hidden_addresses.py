"""Addresses in members that are in no list, of which nobody here knows what a provider does with them."""

import re
from collections.abc import Iterator
from typing import Any

# Readers of addresses skip blanks before one and line breaks within it, and some take backslashes or no host's slashes.
_ADDRESS = re.compile(r"[\x00-\x20]*(?:https?:|[a-z][a-z0-9+.\t\r\n-]+:[/\\])", re.IGNORECASE)
# What names a source that was read or the form of a schema, which honest callers send and nobody fetches.
_NAMED = frozenset({"annotations", "citations", "search_results", "sources", "$schema", "$id"})


def addresses_in(value: Any) -> Iterator[str]:
    """Yields each text in a value that is an address; ``data:`` is none."""
    if isinstance(value, str):
        if _ADDRESS.match(value):
            yield value
    elif isinstance(value, list):
        for each in value:
            yield from addresses_in(each)
    elif isinstance(value, dict):
        for name in value.keys() - _NAMED:
            yield from addresses_in(value[name])
