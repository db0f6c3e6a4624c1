"""Columns and filters of the console's lists; none runs a query."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from config.console.template_tags import instant
from config.money import in_dollars


def moment(field: str, label: str = "") -> Callable[[Any], str]:
    """A list column for an instant in UTC; the console's script adds the operator's local time."""
    return _column(field, label or field.removesuffix("_at").replace("_", " "), instant)


def yes_no(field: str, label: str = "") -> Callable[[Any], str]:
    """A list column for a boolean, in words: Django's icon for "no" looks like an error."""
    return _column(field, label, lambda value: "yes" if value else "no")


def tokens(field: str, label: str = "") -> Callable[[Any], str]:
    """A list column for a number of tokens, in groups of three."""
    return _column(field, label, _number)


def dollars(field: str, label: str = "") -> Callable[[Any], str]:
    """A list column for an amount of money, to the millionth of a dollar."""
    return _column(field, label, lambda amount: "" if amount is None else in_dollars(amount, 6))


def _number(value: int | None) -> str:
    return "" if value is None else format_html('<span class="number">{}</span>', f"{value:,}")


def _column(field: str, label: str, shown: Callable[[Any], str]) -> Callable[[Any], str]:
    @admin.display(description=label or field.replace("_", " "), ordering=field)
    def column(row: Any) -> str:
        return shown(getattr(row, field))

    return column


class ChoiceFilter(admin.SimpleListFilter):
    """A filter by the choices it offers; any other value leaves the list whole."""

    choices_of: ClassVar[Sequence[tuple[str, str]]] = ()
    # The lookup of the chosen value, if it is not the name of the parameter.
    lookup: ClassVar[str] = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return self.choices_of

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return self.filtered(queryset, value) if value in dict(self.lookup_choices) else queryset

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The rows of one choice."""
        return rows.filter(**{str(self.lookup or self.parameter_name): value})
