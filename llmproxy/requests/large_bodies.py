"""Large bodies: their size, and their shortening to one faulty value.

The validator explains each faulty value, by each alternative of each value around it, before it tells the first.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Any

from config.api.problems import Fault, MalformedRequest, pointer

Json = dict[str, Any]
Place = tuple[str | int, ...]

# The validator copies each faulty value and lists every unknown member, so the number of both is limited.
MAX_VALUES = 100_000
MAX_MEMBERS = 5_000
# The lists that are shortened, the largest first.
MAX_SHORTENED = 30


def size_of(value: Any) -> int:
    """The number of values in a body. Raises ``MalformedRequest`` for too many."""
    size = 0
    level: list[Any] = [value]
    while level:
        lengths = list(map(len, level))
        size += sum(lengths)
        if size > MAX_VALUES:
            raise MalformedRequest(f"A call holds at most {MAX_VALUES:,} values.")
        if any(
            length > MAX_MEMBERS and isinstance(each, dict)
            for each, length in zip(level, lengths, strict=True)
        ):
            raise MalformedRequest(f"An object in a call holds at most {MAX_MEMBERS:,} members.")
        within = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for each in within for value in each if isinstance(value, dict | list)]
    return size


@dataclass(frozen=True, slots=True)
class _Shortening:
    place: Place
    first: int
    holder: Any
    name: Any
    values: list[Any]


def one_fault(
    data: Json, *, is_valid: Callable[[Json], bool], explained: Callable[[], Fault]
) -> Fault:
    """Returns a fault of a faulty body, as it is ``explained`` while each list has one value left, a faulty one."""
    done: list[_Shortening] = []
    try:
        fault = _shorten_all(data, done, is_valid=is_valid) or explained()
        return replace(fault, pointer=_whole(fault.pointer, done))
    finally:
        for each in done:
            each.holder[each.name] = each.values


def _shorten_all(
    data: Json, done: list[_Shortening], *, is_valid: Callable[[Json], bool]
) -> Fault | None:
    """Shortens the lists of a body, the largest first; returns the fault of one that is too long."""
    waiting = list(_lists(data, ()))
    heapify(waiting)
    while waiting and len(done) < MAX_SHORTENED:
        _, place, holder, name = heappop(waiting)
        values = holder[name]
        if len(values) > 1:
            first, most = _shorten(data, holder, name, is_valid=is_valid)
            done.append(_Shortening(place, first, holder, name, values))
            if most:
                return Fault(pointer(place), "invalid", f"The value has more than {most} items.")
        for each in _lists(holder[name], place):
            heappush(waiting, each)
    return None


def _lists(holder: Any, place: Place) -> Iterator[tuple[int, Place, Any, Any]]:
    """Yields the lists in a value that are in no other list of it, with what puts the largest first."""
    for name, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
        if isinstance(value, list):
            yield -size_of(value), (*place, name), holder, name
        elif isinstance(value, dict):
            yield from _lists(value, (*place, name))


def _shorten(
    data: Json, holder: Any, name: Any, *, is_valid: Callable[[Json], bool]
) -> tuple[int, int]:
    """Halves a list as long as one half keeps the body faulty, the first before the second.

    Returns where the rest begins, and how long it may be if it is too long.
    """

    def is_faulty(part: list[Any]) -> bool:
        holder[name] = part
        return not is_valid(data)

    first, values = 0, holder[name]
    while len(values) > 1:
        half = len(values) // 2
        if is_faulty(values[:half]):
            values = values[:half]
        elif is_faulty(values[half:]):
            first, values = first + half, values[half:]
        else:
            lengths = range(1, len(values) + 1)
            return first, bisect_left(lengths, True, key=lambda n: is_faulty(values[:n]))
    return first, 0


def _whole(short: str, done: list[_Shortening]) -> str:
    """The pointer into the whole body of one into the short body."""
    # The innermost first: the place of each is one in the short body.
    for each in sorted(done, key=lambda each: -len(each.place)):
        head = pointer((*each.place, 0))
        if short == head or short.startswith(f"{head}/"):
            short = pointer((*each.place, each.first)) + short.removeprefix(head)
    return short
