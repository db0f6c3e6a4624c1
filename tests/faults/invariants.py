"""Invariants that hold whatever fails: one row of a table for each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.faults.traffic import SIGNED_OUT, Seen

LONGEST = 15.0
WAIT = "a wait over 15 s"
# It fetches artifacts and reads the CDN back, and has two minutes for all of it.
PATIENT = {"publish": 125.0}
UNTYPED = {"internal_error", "a page", "without a code"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The observations of a scenario. ``delay`` is the greatest delay of this machine itself."""

    seen: Sequence[Seen]
    sums: Sequence[str]
    delay: float
    # The usual time of each kind on this machine without faults.
    usual: Mapping[str, float]
    # Kinds that wait longer than LONGEST, as they are told to.
    patience: Mapping[str, float]
    # Codes of a 401 that are right by the clock of this scenario.
    expired: frozenset[str]


def _false_401(watched: Watched) -> Iterator[str]:
    for each in watched.seen:
        is_refused = each.status == 401 or each.code == SIGNED_OUT
        if is_refused and each.code not in watched.expired:
            yield f"{each.kind}: {each.status} {each.code}"


def _false_suspension(watched: Watched) -> Iterator[str]:
    for each in watched.seen:
        if each.status == 403 or "suspended" in each.code or each.code.startswith("licence"):
            yield f"{each.kind}: {each.status} {each.code}"


def _long_wait(watched: Watched) -> Iterator[str]:
    for each in watched.seen:
        own = watched.delay + watched.usual.get(each.kind, 0.0)
        if each.silence > watched.patience.get(each.kind, LONGEST) + own:
            yield f"{each.kind}: {each.silence:.1f} s until {each.status} {each.code}"


def _untyped(watched: Watched) -> Iterator[str]:
    """A fault of a server that the service needs is no bug of the service, and has a code of its own."""
    for each in watched.seen:
        is_page = each.kind == "console" and each.status != 500
        if each.status >= 500 and each.code in UNTYPED and not is_page:
            yield f"{each.kind}: {each.status} {each.code}"


INVARIANTS: dict[str, Callable[[Watched], Iterator[str]]] = {
    "a false 401": _false_401,
    "a false suspension": _false_suspension,
    "a row lost or doubled": lambda watched: iter(watched.sums),
    WAIT: _long_wait,
    "a fault without a code": _untyped,
}


def broken(watched: Watched) -> dict[str, list[str]]:
    """Returns the broken invariants, with at most three examples each."""
    found = {name: sorted(set(check(watched))) for name, check in INVARIANTS.items()}
    return {name: examples[:3] for name, examples in found.items() if examples}
