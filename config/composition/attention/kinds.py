"""A kind of what needs attention: the rows that do, by one short query, and the action that answers each.

``templates/admin/attention`` has the sentence of each kind, and ``templates/mail/attention``, of those that are
told, the subject, in the first line and without names of people, and of those that are mailed the text.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from html import unescape
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from django.db.models import Count, Min, QuerySet, Value
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import strip_tags
from django.utils.safestring import SafeString

# Of one kind; the others are summed.
SHOWN = 3
# What is no row of a table.
Found = SimpleNamespace


class Level(IntEnum):
    ACT = 0
    WATCH = 1


Rows = QuerySet[Any] | Iterable[Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """``area`` is the entry of the sidebar under which it counts, ``right`` what shows it to an operator.

    ``rows`` are those of a query, or found otherwise; ``then`` makes of the rows of a query what is shown. ``since`` is
    the attribute of a row that says since when, ``on`` the one with what ``acts`` are done on, of which the first that
    is possible is offered. A row may have a ``level``, a ``whom`` and ``acts`` of its own.
    """

    name: str
    area: str
    right: str
    rows: QuerySet[Any] | Callable[[datetime], Rows]
    level: Level = Level.WATCH
    since: str = "since"
    on: str = ""
    acts: str = ""
    whom: str = ""
    then: Callable[[QuerySet[Any], datetime], Iterable[Any]] | None = None
    is_mailed: bool = False
    # How many are named, beside one item for the number of the others.
    shown: int = SHOWN

    def found(self, now: datetime) -> Rows:
        return self.rows.all() if isinstance(self.rows, QuerySet) else self.rows(now)

    def items(self, found: Rows, now: datetime, *, whole: bool = False) -> Iterator["Item"]:
        """An item for each of the first rows, and one for the number of the others, or all if ``whole``."""
        rows: Any = self.then(found, now) if self.then and isinstance(found, QuerySet) else found
        rows = rows if isinstance(rows, QuerySet) else list(rows)
        if not self.shown:
            since = {self.since: Min(self.since)} if self.since != "since" else {}
            numbers = rows.order_by().aggregate(number=Count("pk"), **since)
            yield Item(self, Found(**numbers), more=numbers["number"])
            return
        first = list(rows if whole else rows[: self.shown + 1])
        few = whole or len(first) <= self.shown
        yield from (Item(self, row) for row in (first if few else first[: self.shown]))
        if not few:
            number = len(rows) if isinstance(rows, list) else rows.count()
            yield Item(self, first[-1], more=number - self.shown)


def items_of(kinds: Iterable[Kind], *, now: datetime, whole: bool = False) -> Iterator["Item"]:
    """The items of kinds. One query asks which of those that are queries have rows at all: most have none."""
    found = {kind: kind.found(now) for kind in kinds}
    probes = [
        rows.order_by().values_list(Value(kind.name))[:1]
        for kind, rows in found.items()
        if isinstance(rows, QuerySet)
    ]
    there = {name for (name,) in probes[0].union(*probes[1:], all=True)} if probes else ()
    for kind, rows in found.items():
        if kind.name in there or not isinstance(rows, QuerySet):
            yield from kind.items(rows, now, whole=whole)


@dataclass(frozen=True, slots=True)
class Item:
    """What needs attention now: one row, or where there are many the number of those that are not named."""

    kind: Kind
    row: Any
    more: int = 0

    def __str__(self) -> str:
        return unescape(strip_tags(self.says()))

    @property
    def name(self) -> str:
        """The watch knows by it whether this was mailed."""
        key = getattr(self.row, "pk", "")
        return f"{self.kind.name.replace('_', ' ')}{key and ': '}{key}"

    @property
    def level(self) -> Level:
        return getattr(self.row, "level", self.kind.level)

    @property
    def since(self) -> datetime | None:
        return getattr(self.row, self.kind.since, None)

    @property
    def whom(self) -> str:
        """How many it concerns, as in "97 people"."""
        return "" if self.more else getattr(self.row, "whom", self.kind.whom)

    @property
    def acts(self) -> list[str]:
        acts: str = "" if self.more else getattr(self.row, "acts", self.kind.acts)
        return acts.split()

    @property
    def on(self) -> Any:
        return attrgetter(self.kind.on)(self.row) if self.kind.on else self.row

    @property
    def is_mailed(self) -> bool:
        return self.kind.is_mailed and getattr(self.row, "is_mailed", True)

    def says(self, request: HttpRequest | None = None) -> SafeString:
        """The sentence, with links to what this operator may open."""
        # A template has escaped it.
        return SafeString(self._written("admin", ".html", request=request).strip())  # nosec B308, B703

    def mail(self) -> tuple[str, str]:
        """Subject and text."""
        subject, _, text = unescape(self._written("mail", ".txt")).partition("\n")
        return subject, text.strip()

    def _written(self, folder: str, ending: str, **more: Any) -> Any:
        template = f"{folder}/attention/{self.kind.name}{ending}"
        return render_to_string(template, {"row": self.row, "more": self.more, **more})
