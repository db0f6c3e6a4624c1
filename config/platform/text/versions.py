"""Versions: strict SemVer 2.0, in the order in which shells compare them.

Shells use Rust's ``semver`` crate, whose total order includes build metadata; SemVer's own precedence ignores it.
The service offers only versions that are newer in this order.
"""

import re
from dataclasses import dataclass, field
from functools import total_ordering
from typing import Any, Self

MAX_LENGTH = 120
# The crate's numbers are unsigned 64-bit integers.
MAX_NUMBER = 2**64 - 1
_NUMBER = r"(?:0|[1-9][0-9]*)"
_PRE = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_BUILD = r"[0-9A-Za-z-]+"
STRICT = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_PRE}(?:\.{_PRE})*))?(?:\+({_BUILD}(?:\.{_BUILD})*))?"
)


class NotAVersion(ValueError):
    """The text is not a strict SemVer version; the message is for a person."""


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """One version; ``str`` returns its original text."""

    text: str
    sort_key: tuple[Any, ...] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ``NotAVersion``."""
        match = STRICT.fullmatch(text)
        if match is None:
            raise NotAVersion(_why(text))
        if len(text) > MAX_LENGTH:
            raise NotAVersion(f"A version has at most {MAX_LENGTH} characters.")
        numbers = tuple(int(each) for each in match.group(1, 2, 3))
        if max(numbers) > MAX_NUMBER:
            raise NotAVersion("A number in a version must fit in 64 bits.")
        return cls(text, (*numbers, _pre_key(match[4]), _identifiers_key(match[5] or "")))

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self.sort_key == other.sort_key if isinstance(other, Version) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.sort_key < other.sort_key if isinstance(other, Version) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.sort_key)


def _pre_key(pre: str | None) -> tuple[Any, ...]:
    """Sorts a release after all of its pre-releases."""
    return (0, _identifiers_key(pre)) if pre else (1,)


def _identifiers_key(dotted: str) -> tuple[tuple[Any, ...], ...]:
    return tuple(_identifier_key(each) for each in dotted.split("."))


def _identifier_key(identifier: str) -> tuple[Any, ...]:
    """Sorts digits by value, fewer leading zeros first, and before identifiers with letters."""
    if identifier.isdecimal() or not identifier:
        value = identifier.lstrip("0")
        return (0, len(value), value, len(identifier))
    return (1, identifier)


def _why(text: str) -> str:
    if STRICT.fullmatch(text.strip().removeprefix("v").removeprefix("V")):
        return "Write the version without a leading v or spaces: for example, 1.2.3."
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return "A version has three numbers, such as 1.2.3."
    if re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+(\.[0-9]+)+", text):
        return "A version has three numbers; put a fourth in build metadata, such as 1.2.3+4."
    if re.search(r"(^|[.-])0[0-9]+([.+-]|$)", text):
        return "A number in a version has no leading zeros."
    return "This is not a SemVer version, such as 1.2.3, 1.2.3-beta.1 or 1.2.3+build.5."
