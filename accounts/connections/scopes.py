"""Reads the scopes of a provider's response, which are words, whatever separates them.

RFC 6749 (3.3) separates them by spaces; providers also send commas, line breaks and lists.
"""

import json
import re

MOST = 100
# As in RFC 6749 (3.3), with a length limit. Invalid scopes are left out and do not refuse the tokens beside them.
SCOPE = re.compile(r"[!#-\[\]-~]{1,500}")
_BLANKS = re.compile(r"(?:\s|%20|%0A|\+)+", re.IGNORECASE)
_MARKS = re.compile(r"(?:[,;|]|%2C)+", re.IGNORECASE)
# An address may contain a comma; another address after one is a scope of its own.
_NEXT_ADDRESS = re.compile(r"[,;|]+(?=[a-z][a-z0-9+.-]*://)", re.IGNORECASE)


def granted(value: object) -> list[str] | None:
    """The scopes in a response's member, sorted; None if it is absent, [] if it cannot be read."""
    if value is None:
        return None
    return sorted({each for each in _words(value) if SCOPE.fullmatch(each)})[:MOST]


def _words(value: object) -> list[str]:
    if isinstance(value, list):
        # Without recursion into lists: a response may nest them deeply.
        return [word for each in value if isinstance(each, str) for word in _split(each)]
    if not isinstance(value, str):
        return []
    if value.lstrip().startswith("["):
        try:
            return _words(json.loads(value))
        except (ValueError, RecursionError):
            pass
    return _split(value)


def _split(value: str) -> list[str]:
    words = _BLANKS.split(value)
    separated_by_blanks = len([word for word in words if word.strip(",;|")]) > 1
    return [
        part
        for word in words
        for part in _separator(word, separated_by_blanks=separated_by_blanks).split(
            word.strip(",;|")
        )
    ]


def _separator(word: str, *, separated_by_blanks: bool) -> re.Pattern[str]:
    return _NEXT_ADDRESS if separated_by_blanks and "://" in word else _MARKS
