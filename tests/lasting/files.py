"""The two lists of lasting names: those that are in use, and those that nothing writes any more."""

import csv
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import NamedTuple

from tests.lasting.kinds import KINDS, Name
from tests.tools.folders import ROOT

LISTED, ENDED = ROOT / "docs" / "lasting-names.csv", ROOT / "docs" / "ended-names.csv"


class End(NamedTuple):
    """A name, or without a part all parts of it too, that nothing writes since a release.

    ``understood`` describes how earlier ones still are.
    """

    kind: str
    name: str
    part: str
    since: str
    understood: str

    def covers(self, name: Name) -> bool:
        kind, whole, part = name
        return (self.kind, self.name) == (kind, whole) and self.part in {"", part}


def listed() -> set[Name]:
    with LISTED.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    return {(kind, name, part) for kind, name, parts in rows for part in ["", *parts.split()]}


@cache
def ends() -> list[End]:
    with ENDED.open(newline="") as file:
        return [End(*row) for row in list(csv.reader(file))[1:]]


def write(names: Iterable[Name]) -> None:
    with LISTED.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows(names))


def rows(names: Iterable[Name]) -> Iterator[list[str]]:
    """A row for each name, with the names within it; kinds in their order."""
    yield ["kind", "name", "parts"]
    order = {kind: number for number, kind in enumerate(KINDS)}
    ordered = sorted(names, key=lambda each: (order.get(each[0], -1), each))
    for (kind, name), parts in groupby(ordered, key=lambda each: each[:2]):
        yield [kind, name, " ".join(filter(None, (part for *_, part in parts)))]
