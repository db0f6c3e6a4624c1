"""Filters of lists from the address, in the operator's words: a choice, a name, a number or an instant.

Each has one value under its own name; older names, which links and operators keep, lead to the same filter. A value
that cannot be understood finds nothing and says why: if it were ignored, an operator might act on all rows.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, NamedTuple

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

MOST_TYPED = 200  # characters
# The choice of rows without a value, such as callers without a label.
NONE = "none"


class Unknown(Exception):
    """A typed value that names nothing, with its sentence."""


class Field(NamedTuple):
    """An input of a filter, and what it proposes; ``hint`` is shown while it is empty."""

    name: str
    label: str
    value: str
    kind: str = "text"
    hint: str = ""
    proposals: Sequence[str] = ()


class TypedFilter(admin.ListFilter):
    """A filter by one value. ``names``: its own name in the address, and older ones."""

    names: ClassVar[Sequence[str]]
    hint: ClassVar[str] = ""
    # Shown in the form at once, not among further filters.
    is_first: ClassVar[bool] = False

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        typed = {name: _plain(params.pop(name)[-1]) for name in self.names if name in params}
        self.request = request
        self.used_parameters.update({name: text for name, text in typed.items() if text})
        # The sentence about a value that cannot be understood.
        self.problem = ""

    @property
    def given(self) -> str:
        """Returns the value; "" without one."""
        return next((str(text) for text in self.used_parameters.values()), "")

    @property
    def finds_few(self) -> bool:
        """Returns whether an index finds its rows, which are few."""
        return False

    @property
    def leads(self) -> bool:
        """Returns whether an index gives its rows by time, or more rows, which ``leading`` returns."""
        return False

    @property
    def is_one(self) -> bool:
        """Returns whether that index gives them in the order of time, which it does for one value."""
        return True

    # The index alone decides; no further column is compared.
    is_whole: ClassVar[bool] = True

    def leading(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return self.queryset(self.request, rows)

    @property
    def shown(self) -> str:
        """Returns the value as its field has it."""
        return self.given

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return [*self.names]

    def proposals(self) -> Sequence[str]:
        """Returns names that the field proposes."""
        return ()

    @property
    def fields(self) -> list[Field]:
        hint, label = self.hint, str(self.title)
        return [Field(self.names[0], label, self.shown, "text", hint, self.proposals())]

    def choices(self, changelist: Any) -> Iterator[Any]:
        return iter(())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.given:
            return queryset
        try:
            return self.filtered(queryset, self.given)
        except Unknown as unknown:
            self.problem = str(unknown)
            return queryset.none()

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The rows of a value. Raises ``Unknown``."""
        raise NotImplementedError


class ChosenFilter(TypedFilter):
    """A filter by one of its choices, whose form is a select."""

    def options(self) -> Sequence[tuple[str, str]]:
        """Returns values and labels."""
        raise NotImplementedError

    @property
    def fields(self) -> list[Field]:
        return []

    def choices(self, changelist: Any) -> Iterator[Any]:
        # Django's own way leaves out each parameter that begins with a name.
        others = dict.fromkeys(self.names)
        options = list(self.options())
        if self.shown and self.shown not in dict(options):
            options.append((self.shown, self.shown))
        for value, label in options:
            query = changelist.get_query_string({**others, self.names[0]: value or None})
            yield {"selected": value == self.shown, "query_string": query, "display": label}


def number_of(typed: str, *, example: str, unit: str) -> Decimal:
    """Parses a number of a unit, such as ``30``, ``30 s`` or ``$0.50``. Raises ``Unknown`` with an example."""
    text = typed.replace(unit, "").strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 <= number < 10**9:
        raise Unknown(f"“{typed}” is not a number. Enter one such as {example}.")
    return number


def instant_of(typed: str) -> datetime:
    """Parses a day or an instant, in UTC where it names no zone. Raises ``Unknown``."""
    # An address that somebody has written by hand has a space in place of the plus.
    text = f"{typed[:-6]}+{typed[-5:]}" if typed[-6:-5] == " " and typed[-3:-2] == ":" else typed
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise Unknown(f"“{typed}” is not a time. Enter one such as 2026-11-28T09:30.") from None


def _plain(text: str) -> str:
    return str(text).strip()[:MOST_TYPED]
