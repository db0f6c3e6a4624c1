"""Cases that try each value of each parameter at least once, in place of all combinations."""

from collections.abc import Iterable
from random import Random
from typing import Any


def each_once(*lists: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Returns as many cases as the longest list has values; the same at every call.

    A shorter list is repeated, in another order each time, so that its values follow those of no other list. A plain
    tuple stands for the values of several parameters.
    """
    columns = [[*values] for values in lists]
    size = max(map(len, columns))
    filled = [_repeated(values, size, Random(place)) for place, values in enumerate(columns)]
    return [
        tuple(part for value in case for part in (value if type(value) is tuple else (value,)))
        for case in zip(*filled, strict=True)
    ]


def _repeated(values: list[Any], size: int, chance: Random) -> list[Any]:
    """Returns so many values: in their order where they are as many, and else in shuffled rounds."""
    if len(values) == size:
        return values
    rounds = (chance.sample(values, len(values)) for _ in range(-(-size // len(values))))
    return [value for each in rounds for value in each][:size]
