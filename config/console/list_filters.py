"""Restricts the console's lists to the filters that their pages offer.

Django filters a list by any column that its address names. An operator who may view the list could then read a hidden
column, such as a hash, character by character.
"""

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode

from django.contrib import admin
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict

from config.platform.db.connections import plan_for_values
from config.platform.problems.problem import MalformedRequest

# The names of the selects in ``parts/filters.html``, whose values are parts of the query string; "" for no filter.
FILTER = "filter"


class UnknownFilter(MalformedRequest):
    """The address has an unknown filter: if it were ignored, an operator might act on all rows."""

    default_detail = "This list cannot be filtered by that."


class RestrictedChangeList(ChangeList):
    model_admin: "RestrictedAdmin"

    def get_filters(self, request: HttpRequest) -> Any:
        """Raises ``UnknownFilter`` for a parameter that no filter, no calendar and no link of the console uses."""
        try:
            found = super().get_filters(request)
        except DisallowedModelAdminLookup:
            raise UnknownFilter from None
        days = self.date_hierarchy
        offered = {*self.model_admin.link_lookups, f"{days}__gte", f"{days}__lt"}
        # Django applies every remaining parameter as a lookup.
        _, _, remaining, *_ = found
        if not offered.issuperset(remaining):
            raise UnknownFilter
        return found

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        whole = self.model_admin.get_queryset(request)
        self.root_queryset = self.model_admin.listed(request, whole)
        return super().get_queryset(request, exclude_parameters)

    def get_results(self, request: HttpRequest) -> None:
        with connection.execute_wrapper(plan_for_values):
            super().get_results(request)
            # Read here, so that the query does not run in the template.
            self.result_list: Any = list(self.result_list)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        if not self.sortable_by:
            # Django omits the links and still sorts by the address's parameter.
            self.params.pop(ORDER_VAR, None)
        return super().get_ordering(request, queryset)


def expanded(query: QueryDict) -> str:
    """Returns the query of a list for its submitted filters."""
    kept = [(name, value) for name, values in query.lists() for value in values if name != FILTER]
    chosen = [pair for value in query.getlist(FILTER) for pair in parse_qsl(value)]
    return urlencode([(name, value) for name, value in [*kept, *chosen] if value])


class RestrictedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Lists that accept only the filters of their page. The console's site applies this to every page."""

    # The lookups that links of other pages use, such as ``user__id__exact``.
    link_lookups: ClassVar[Sequence[str]] = ()

    def listed(self, request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
        """The rows with what the columns of a list need; the page of one row needs none of it."""
        return rows

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ChangeList]:
        return RestrictedChangeList
