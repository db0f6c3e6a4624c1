"""Flatness of a figure that is measured again and again."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

# The part of a process' life in which it may grow: it has to see each kind of request first.
WARMING = 0.3
# A slope of fewer looks says nothing.
LEAST = 10
# So many at most are compared with each other.
MOST = 120

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """By how much something may grow from the end of its warming to the end of the soak: a part of it, or so much."""

    part: float
    floor: float

    def allows(self, points: Points) -> bool:
        """A figure that falls is flat."""
        return grown(points) <= max(self.floor, self.part * abs(points[0][1]))


def warmed(points: Points, *, until: float) -> Points:
    """Without the warming of what was first looked at then: a share of the time until the end of the soak."""
    if not points:
        return points
    begin = points[0][0]
    return [each for each in points if each[0] >= begin + WARMING * (until - begin)]


def grown(points: Points) -> float:
    """By how much it grew, by its slope; a peak is no slope, a leap in the middle is one."""
    return slope(points) * (points[-1][0] - points[0][0]) if points else 0.0


def slope(points: Points) -> float:
    """The middle one of the slopes between each two points (Theil and Sen); 0 of too few."""
    if len(points) < LEAST:
        return 0.0
    chosen = points[:: -(-len(points) // MOST)]
    return median(
        (later - before) / (end - begin)
        for (begin, before), (end, later) in combinations(chosen, 2)
        if end > begin
    )
