"""Labels of calls: OpenAI's ``user`` and ``metadata``, kept on the record for exports.

A provider has no use for either. Only so much is kept as OpenAI takes; more is no reason to refuse a call.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

MOST_PAIRS = 16
LONGEST_NAME = 64
LONGEST_VALUE = 512


def labels_of(members: Mapping[str, Any]) -> dict[str, Any] | None:
    """``{user, metadata}`` of a valid call, each where it is given; None without either."""
    user, metadata = members.get("user"), members.get("metadata")
    pairs = {
        _kept(name, LONGEST_NAME): _kept(str(value), LONGEST_VALUE)
        for name, value in islice((metadata or {}).items(), MOST_PAIRS)
        if isinstance(value, str | int | float)
    }
    found = {"user": _kept(user, LONGEST_VALUE) if user else None, "metadata": pairs}
    return {name: value for name, value in found.items() if value} or None


def _kept(text: str, most: int) -> str:
    """As much of a text as is kept, without characters that PostgreSQL cannot hold."""
    return text[:most].replace("\0", "").encode("utf-8", "replace").decode()
