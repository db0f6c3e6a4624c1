"""Columns and filters of the console's lists; none runs a query."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from config.console.navigation import page_of
from config.console.tables import Link, state_chip
from config.console.template_tags import cell, instant


def moment(field: str, label: str = "") -> Callable[[Any], str]:
    """A list column for an instant, which the console's script turns into the operator's local time."""
    return _column(field, label or field.removesuffix("_at").replace("_", " "), instant)


def exact(field: str, label: str) -> Callable[[Any], str]:
    """A list column for an instant, today to the second."""
    return _column(field, label, lambda at: instant(at, "second"))


def state(field: str) -> Callable[[Any], str]:
    """A list column for a state: word, shape and colour."""
    return _column(field, "", lambda value: cell(state_chip(value)) if value else "")


def person(*, linked: bool = True) -> Callable[[Any], str]:
    """A list column for the person of a row, linked to their page unless it opens the row's."""
    return _column("user", "person", _linked if linked else str)


def yes_no(field: str, label: str = "") -> Callable[[Any], str]:
    """A list column for a boolean, in words: Django's icon for "no" looks like an error."""
    return _column(field, label, lambda value: "yes" if value else "no")


def tokens(field: str, label: str = "") -> Callable[[Any], str]:
    """A list column for a number of tokens, in groups of three."""
    return _column(field, label, _number)


def act(
    request: HttpRequest, name: str, label: str, said: str, *, on: str = ""
) -> Callable[[Any], str]:
    """A list column with a link to an action on a row, or on what it names, where the operator may take it.

    ``said`` is its accessible label.
    """

    @admin.display(description="")
    def column(row: Any) -> str:
        target = getattr(row, on) if on else row
        console: Any = admin.site.get_model_admin(type(target))
        page = console.link(request, name, target)
        link = '<a href="{}" class="button small" aria-label="{}">{}…</a>'
        return format_html(link, page, said.format(row), label) if page else ""

    return column


def _linked(user: Any) -> str:
    return cell(Link(str(user or ""), page_of(user) if user else ""))


def _number(value: int | None) -> str:
    return right("" if value is None else f"{value:,}")


def right(text: str) -> str:
    """A cell that holds a number."""
    return format_html('<span class="number">{}</span>', text)


def _column(field: str, label: str, as_text: Callable[[Any], str]) -> Callable[[Any], str]:
    @admin.display(description=label or field.replace("_", " "), ordering=field)
    def column(row: Any) -> str:
        return as_text(getattr(row, field))

    # The class of its cells is derived from it.
    column.__name__ = field
    return column


class ChoiceFilter(admin.SimpleListFilter):
    """A filter by its choices; any other value is ignored."""

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
