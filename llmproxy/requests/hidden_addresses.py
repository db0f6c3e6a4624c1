"""Addresses in members that are in no list, of which nobody here knows what a provider does with them."""

import re
from collections.abc import Iterator
from typing import Any

from llmproxy.requests.forms import is_form

# Readers of addresses skip these within one.
_SKIPPED = dict.fromkeys(map(ord, "\t\r\n"))
# They skip blanks and brackets before one, and some take backslashes or no slashes. Text that begins with a host and
# goes on is no address to any, but for a name and a password before an @. ``//host/a`` is one to none.
_ADDRESS = re.compile(
    r"[\s\x00-\x20\ufeff]*+<?\s*+(?:url:)?\s*+(?:https?:|(?:ftp|file|s3|gs):[/\\]|[a-z][a-z0-9+.-]++://)"
    r"(?![/\\]*+(?=[^/?#@]*+(?:[/?#]|$))[^/?#\\]*\s)",
    re.IGNORECASE,
)
# In these members a text of more than one word is prose, and a blank is no part of a path.
_PROSE = frozenset({"content", "description", "text", "title"})
# Members of a model's answer that name sources.
_SOURCES = frozenset({"annotations", "citations", "search_results", "sources"})


def addresses_in(value: Any, *, is_said: bool, name: str = "") -> Iterator[str]:
    """Yields each text in the value of a member that is an address; ``data:`` is none. ``is_said``: by a model."""
    if isinstance(value, str):
        is_prose = name in _PROSE and len(value.split(maxsplit=1)) > 1
        if not is_prose and _ADDRESS.match(value.translate(_SKIPPED)):
            yield value
    elif isinstance(value, list):
        for each in value:
            yield from addresses_in(each, is_said=is_said, name=name)
    elif isinstance(value, dict):
        for member, each in value.items():
            if not (is_form(member) or (is_said and member in _SOURCES)):
                yield from addresses_in(each, is_said=is_said, name=member)
