"""Shares of a whole in percent."""

from collections.abc import Sequence


def percents(parts: Sequence[int]) -> list[int]:
    """Whole percents of parts, which add up to 100: those with the largest remainders are rounded up."""
    whole = sum(parts)
    if not whole:
        return [0 for _ in parts]
    rounded = [100 * each // whole for each in parts]
    largest = sorted(range(len(parts)), key=lambda place: -(100 * parts[place] % whole))
    for place in largest[: 100 - sum(rounded)]:
        rounded[place] += 1
    return rounded
