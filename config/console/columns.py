"""Columns and filters of the console's lists; none runs a query."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from config.console.template_tags import instant


def moment(field: str, label: str = "") -> Callable[[Any], str]:
    """A list column for an instant: UTC, and by the console's script the operator's own time beside it."""

    @admin.display(description=label or field.removesuffix("_at").replace("_", " "), ordering=field)
    def column(row: Any) -> str:
        return instant(getattr(row, field))

    return column


def yes_no(field: str, label: str) -> Callable[[Any], str]:
    """A list column for a truth, in words: an icon for "no" would look like an error where "no" is the rule."""

    @admin.display(description=label, ordering=field)
    def column(row: Any) -> str:
        return "yes" if getattr(row, field) else "no"

    return column


def tokens(field: str, label: str = "") -> Callable[[Any], str]:
    """A list column for a number of tokens, in groups of three."""

    @admin.display(description=label or field.replace("_", " "), ordering=field)
    def column(row: Any) -> str:
        value = getattr(row, field)
        return "" if value is None else format_html('<span class="number">{}</span>', f"{value:,}")

    return column


class ChoiceFilter(admin.SimpleListFilter, ABC):
    """A filter of fixed choices, shown without a query."""

    choices_of: ClassVar[Sequence[tuple[str, str]]] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return self.choices_of

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        known = value is not None and value in dict(self.lookup_choices)
        return self.filtered(queryset, value) if known and value is not None else queryset

    @abstractmethod
    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The rows of one choice."""
