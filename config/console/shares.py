"""Shares of a whole in percent."""

from collections.abc import Sequence
from typing import NamedTuple

# The versions that a table names.
SHOWN = 8


class Line(NamedTuple):
    """A version, or "3 other versions", with its number and share in percent; all shares add up to 100."""

    version: str
    number: int
    percent: int


def lines(counted: Sequence[tuple[str, int]]) -> list[Line]:
    """Returns the first eight of the numbers by version, and all others in one line."""
    shown, others = list(counted[:SHOWN]), counted[SHOWN:]
    if others:
        name = f"{len(others):,} other version{'' if len(others) == 1 else 's'}"
        shown.append((name, sum(number for _, number in others)))
    shares = percents([number for _, number in shown])
    return [Line(*each, share) for each, share in zip(shown, shares, strict=True)]


def percents(parts: Sequence[int]) -> list[int]:
    """Whole percents of parts, which add up to 100: those with the largest remainders are rounded up."""
    whole = sum(parts)
    if not whole:
        return [0 for _ in parts]
    found = [100 * each // whole for each in parts]
    largest = sorted(range(len(parts)), key=lambda place: -(100 * parts[place] % whole))
    for place in largest[: 100 - sum(found)]:
        found[place] += 1
    return found
