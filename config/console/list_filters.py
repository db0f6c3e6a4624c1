"""What the console's lists may be asked for: what their pages offer, and nothing else.

Django filters a list by whatever column its address names. A hash that no page shows could then be read letter by
letter by everybody who may look at the list.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest

from config.api.problems import MalformedRequest

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class UnknownFilter(MalformedRequest):
    """Not ignored: who acts on the rows of a list must not take all of them for the ones that were asked for."""

    default_detail = "This list cannot be filtered by that."


class RestrictedChangeList(ChangeList):
    model_admin: "RestrictedAdmin"

    def get_filters(self, request: HttpRequest) -> Any:
        """Raises ``UnknownFilter`` for a parameter of no filter, of no calendar and of no link that leads here."""
        try:
            found = super().get_filters(request)
        except DisallowedModelAdminLookup:
            raise UnknownFilter from None
        days = self.date_hierarchy
        offered = {*self.model_admin.link_lookups, f"{days}__gte", f"{days}__lt"}
        # What no filter has taken would be looked up in the table as it stands.
        _, _, left, *_ = found
        if not offered.issuperset(left):
            raise UnknownFilter
        return found

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        if not self.sortable_by:
            # Django leaves the links out, and would still sort by an address.
            self.params.pop(ORDER_VAR, None)
        return super().get_ordering(request, queryset)


class RestrictedAdmin(_ModelAdmin):
    """Rows that are found by what their page offers. The console's site has every page be one."""

    # The lookups in links of other pages, such as ``user__id__exact``.
    link_lookups: ClassVar[Sequence[str]] = ()

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ChangeList]:
        return RestrictedChangeList
