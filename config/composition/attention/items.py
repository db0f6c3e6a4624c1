"""Items that need attention: rows found by one short query for all kinds, and their sentences."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from html import unescape
from operator import attrgetter
from typing import Any

from django.conf import settings
from django.db.models import Count, DateTimeField, Min, QuerySet, Value
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import strip_tags
from django.utils.safestring import SafeString

from config.console.template_tags import counted
from config.platform.attention import Door, Finding, Kind, Level, Rows

NO_TIME = Cast(Value(None), DateTimeField())
# The kinds that had rows when this process last looked: mostly they still have, and their own query says so.
had_rows: set[str] = set()


def items_of(
    kinds: Iterable[Kind],
    *,
    now: datetime,
    whole: bool = False,
    known: Mapping[str, Rows] | None = None,
) -> Iterator["Item"]:
    """Yields the items of kinds. One query finds which of the kinds that are queries have rows: most have none.

    It also counts the rows of the kinds that list none. ``known`` has the rows of kinds that are found already.
    """
    expected = frozenset(had_rows)
    known = known or {}
    found = {kind: known[kind.name] if kind.name in known else kind.find(now) for kind in kinds}
    probes = [
        _probe(kind, rows)
        for kind, rows in found.items()
        if isinstance(rows, QuerySet) and not (kind.shown and kind.name in expected)
    ]
    nonempty: dict[str, tuple[int, datetime | None]] = {}
    if probes:
        answers = probes[0].union(*probes[1:], all=True)
        nonempty = {name: counted for name, *counted in answers if counted[0]}
    for kind, rows in found.items():
        if not isinstance(rows, QuerySet):
            yield from _items(kind, rows, now, whole=whole)
        elif kind.shown and kind.name in {*nonempty, *expected}:
            listed = list(_items(kind, rows, now, whole=whole))
            if kind.name not in known:
                (had_rows.add if listed else had_rows.discard)(kind.name)
            yield from listed
        elif kind.name in nonempty:
            number, since = nonempty[kind.name]
            yield Item(kind, Finding(number=number, **{kind.since: since}), more=number)


def _probe(kind: Kind, rows: QuerySet[Any]) -> QuerySet[Any]:
    """A query of a kind's name, with 1 if it has a row, or with the number of its rows and their beginning."""
    name, rows = Value(kind.name), rows.order_by()
    if kind.shown:
        return rows.values_list(name, Value(1), NO_TIME)[:1]
    since = NO_TIME if kind.since == "since" else Min(kind.since)
    counted: QuerySet[Any] = rows.values(kind=name).annotate(number=Count("pk"), beginning=since)
    return counted.values_list("kind", "number", "beginning")


def _items(kind: Kind, found: Rows, now: datetime, *, whole: bool) -> Iterator["Item"]:
    """Yields an item for each of the first rows and one that counts the others, or every row if ``whole``."""
    rows: Any = kind.then(found, now) if kind.then and isinstance(found, QuerySet) else found
    if kind.merged and not whole:
        rows = kind.merged(list(rows))
    rows = rows if isinstance(rows, QuerySet) else list(rows)
    first = list(rows if whole else rows[: kind.shown + 1])
    few = whole or len(first) <= kind.shown
    yield from (Item(kind, row) for row in (first if few else first[: kind.shown]))
    if not few:
        number = len(rows) if isinstance(rows, list) else rows.count()
        yield Item(kind, first[-1], more=number - kind.shown)


@dataclass(frozen=True, slots=True)
class Item:
    """An item that needs attention now: one row, or the number of a kind's rows that are not listed."""

    kind: Kind
    row: Any
    more: int = 0

    def __str__(self) -> str:
        return unescape(strip_tags(self.sentence()))

    @property
    def name(self) -> str:
        """Identifies the item among the notifications."""
        key = getattr(self.row, "pk", "")
        return f"{self.kind.name.replace('_', ' ')}{key and ': '}{key}"

    @property
    def level(self) -> Level:
        return getattr(self.row, "level", self.kind.level)

    @property
    def since(self) -> datetime | None:
        return getattr(self.row, self.kind.since, None)

    @property
    def affected(self) -> str:
        """The number of people affected, as in "97 people"."""
        affected = "" if self.more else getattr(self.row, "affected", self.kind.affected)
        return counted(affected, "person", "people") if isinstance(affected, int) else affected

    @property
    def acts(self) -> list[str]:
        acts: str = "" if self.more else getattr(self.row, "acts", self.kind.acts)
        return acts.split()

    @property
    def door(self) -> Door | None:
        door = None if self.more else self.kind.door
        return door(self.row) if callable(door) else door

    @property
    def on(self) -> Any:
        return attrgetter(self.kind.on)(self.row) if self.kind.on else self.row

    @property
    def is_alert(self) -> bool:
        return self.kind.alert is not None and getattr(self.row, "is_alert", True)

    @property
    def is_mailed_by_rule(self) -> bool:
        return self.kind.alert is not None and self.kind.alert.is_mailed_by_rule

    @property
    def page(self) -> str:
        """The path of the console's page about the item."""
        return reverse(f"admin:{self.kind.right.replace('.view_', '_')}_changelist")

    @property
    def what_to_do(self) -> str:
        """The address of the console's page with the step to take."""
        return f"{settings.BASE_URL}{reverse('admin:alerts')}#{self.kind.name}"

    def sentence(self, request: HttpRequest | None = None) -> SafeString:
        """Returns the sentence, with links to the pages that this operator may open."""
        # A template has escaped it.
        return SafeString(self._written("admin", ".html", request=request).strip())  # nosec B308, B703

    def notice(self) -> tuple[str, str]:
        """Returns the subject and text of a notification."""
        subject, _, text = unescape(self._written("mail", ".txt")).partition("\n")
        return subject, text.strip()

    def _written(self, folder: str, ending: str, **more: Any) -> Any:
        template = f"{folder}/attention/{self.kind.name}{ending}"
        return render_to_string(template, {"row": self.row, "more": self.more, **more})
