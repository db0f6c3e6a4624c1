"""Every address that the service answers at, found in its URL configuration, with something at each variable place."""

import re
from collections.abc import Iterator
from typing import Any

from django.urls import URLResolver, get_resolver

NOWHERE = "00000000-0000-4000-8000-000000000000"
BY_CONVERTER = {"uuid": NOWHERE, "int": "1", "slug": "notes", "str": "notes", "path": NOWHERE}
VARIABLE = re.compile(r"<(?:(\w+):)?\w+>")
# A group of an expression, and what stands in its place: of several choices the first.
GROUP = re.compile(r"\(\?P<(\w+)>[^)]*\)")
BY_GROUP = {"secret": "k" * 43, "url": "nothing", "app_label": "accounts"}


def addresses() -> list[str]:
    """Each address once, in the order of the configuration."""
    return list(dict.fromkeys(f"/{each}" for each in _below(get_resolver().url_patterns)))


def _below(patterns: list[Any], prefix: str = "") -> Iterator[str]:
    for each in patterns:
        address = prefix + _written(str(each.pattern))
        if isinstance(each, URLResolver):
            yield from _below(each.url_patterns, address)
        else:
            yield address


def _written(pattern: str) -> str:
    text = GROUP.sub(lambda found: BY_GROUP[found[1]], pattern)
    text = VARIABLE.sub(lambda found: BY_CONVERTER[found[1] or "str"], text)
    return text.removeprefix("^").removesuffix("$")
