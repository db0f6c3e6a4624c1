"""The finders of the console's search, which apps declare beside their pages."""

import re
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any, NamedTuple, cast
from uuid import UUID

from django.db.models import Model, Q, QuerySet
from django.urls import reverse
from django.utils.http import urlencode

from config.console.navigation import page_of
from config.console.tables import Column, Link, Row, Table
from config.platform.declarations import Declarations
from config.platform.text.forms import email_form

SHOWN, COUNTED = 10, 1_000
# No row has a longer name.
LONGEST = 254
# An id, or the prefix of one that pages show.
BEGINNING = re.compile(r"[0-9a-f]{8}-?[0-9a-f-]{0,27}")
LARGEST = 2**63 - 1


class Term:
    """A search term, with the lookups that it allows."""

    def __init__(self, typed: str) -> None:
        self.text = typed.strip().rstrip("…")[:LONGEST]
        self.hex = self.text.lower().replace("-", "")
        is_id = BEGINNING.fullmatch(self.text.lower()) and len(self.hex) <= 32
        self.ids = [UUID(self.hex.ljust(32, end)) for end in "0f"] if is_id else []

    @property
    def name(self) -> str:
        """The text in the form of a whole id, or in lower case for comparison with another name."""
        return str(self.ids[0]) if self.is_whole else self.text.lower()

    @property
    def email_form(self) -> str:
        """The text as the normal form of an email."""
        return email_form(self.text)

    def id(self, name: str = "id") -> Q:
        """Returns the lookup of rows whose id begins with the text."""
        return Q(**{f"{name}__range": self.ids}) if self.ids else Q(pk__in=())

    def word(self, *lookups: str) -> Q:
        """Returns lookups of the text, which must not be an id."""
        found = (
            Q(**{lookup: self.text.lower() if lookup[:5] == "email" else self.text})
            for lookup in lookups
            if not self.ids
        )
        return reduce(or_, found, Q(pk__in=()))

    def request_id(self, lookup: str) -> Q:
        """Returns the lookup of rows by a request id: the service's own are uuids, a caller's may be any word."""
        either: Any = {self.text, str(self.ids[0])} if self.is_whole else {self.text}
        if lookup.endswith("contains"):
            return reduce(or_, (Q(**{lookup: [each]}) for each in either))
        return Q(**{f"{lookup}__in": either})

    def number(self) -> Q:
        is_number = self.hex.isdecimal() and int(self.hex) <= LARGEST
        return Q(pk=int(self.hex)) if is_number else Q(pk__in=())

    @property
    def is_whole(self) -> bool:
        return len(self.hex) == 32 and bool(self.ids)


class Finder(NamedTuple):
    """Finds the rows of one model, and lists the cells that follow a row's name, with their labels.

    A label may name the kind of its column, as in "Status:chip". ``prepared`` adds what the cells need to the query.
    """

    title: str
    # Its place among the tables of results.
    place: int
    model: type[Model]
    query: Callable[[Term], Q]
    labels: str
    cells: Callable[[Any], Sequence[Any]]
    name: Callable[[Any], Any] = str
    related: Sequence[str] = ()
    order: Sequence[str] = ()
    # Attributes that open the row at once if the whole text matches.
    whole: Sequence[str] = ()
    prepared: Callable[[QuerySet[Any]], QuerySet[Any]] = QuerySet.all

    def find(self, term: Term) -> list[Any]:
        """Returns the rows, one more than are shown if there are more."""
        rows = self.prepared(self._rows(term))
        rows = rows.select_related(*self.related) if self.related else rows
        return list(rows.order_by(*self.order)[: SHOWN + 1])

    def number(self, rows: Sequence[Any], term: Term) -> str:
        """The number of rows that are found, such as "3" or "10 of 226"; counted only where not all are shown."""
        if len(rows) <= SHOWN:
            return f"{len(rows)}"
        found = self._rows(term).order_by()[: COUNTED + 1].count()
        return f"{SHOWN} of {f'more than {COUNTED:,}' if found > COUNTED else f'{found:,}'}"

    def _rows(self, term: Term) -> QuerySet[Any]:
        model: Any = self.model
        rows: QuerySet[Any] = model.objects.filter(self.query(term))
        return rows

    def is_it(self, row: Any, term: Term) -> bool:
        """Returns whether the text is the row's id, or another unique name of it."""
        values = [row.pk, *(getattr(row, each) for each in self.whole)]
        names = chain.from_iterable(each if isinstance(each, list) else [each] for each in values)
        return not {term.name, term.email_form}.isdisjoint(str(each).lower() for each in names)

    def table(self, rows: Sequence[Any], term: Term) -> Table:
        model = self.model._meta.label_lower.replace(".", "_")  # noqa: SLF001 - documented
        address = f"{reverse(f'admin:{model}_changelist')}?{urlencode({'q': term.text})}"
        columns = (each.partition(":") for each in self.labels.split(", "))
        return Table(
            [Column(label, cast("Any", kind or "text")) for label, _, kind in columns],
            [Row([self.name(row), *self.cells(row)], href=page_of(row)) for row in rows[:SHOWN]],
            more=Link(f"All {self.title.lower()}", address) if len(rows) > SHOWN else None,
            number=self.number(rows, term),
        )


finders: Declarations[Finder] = Declarations(lambda finder: finder.title)


def short_id(row: Any) -> str:
    return f"{str(row.pk)[:8]}…"
