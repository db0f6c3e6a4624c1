"""What all pages of the operators' console have in common: lists that stay quick, rows to look at, acts.

A row is never edited in place and Django's own log of edits is not kept, because it would be a second truth
beside the audit log, and would keep the names of erased people.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from config.console.action_views import Asking
from config.console.list_filters import Offered

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

COUNTED_ROWS = 10_000


class BoundedPaginator(_Paginator):
    """Counts to 10 000 and no further: counting a whole ledger takes longer than showing it."""

    @cached_property
    def count(self) -> int:
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        return rows.order_by()[:COUNTED_ROWS].count()


class ConsoleAdmin(Offered, Asking):
    """Rows to look at. What may be done to them are acts; without any, they are read-only."""

    # Searched for, exactly and by index, when what is looked for is a uuid.
    uuid_fields: ClassVar[Sequence[str]] = ()

    actions = ()
    change_form_template = "admin/console/row.html"
    # Names and columns alike; the base class knows of names only.
    fields: ClassVar[Any] = None
    list_per_page = 50
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.adding is not None and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return (*super().get_readonly_fields(request, obj), *filter(callable, self.fields or ()))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Rows that a word is found in; a uuid is looked up instead of searched for."""
        identity = _uuid(search_term)
        if identity is None or not self.uuid_fields:
            return super().get_search_results(request, queryset, search_term)
        return queryset.filter(self.identified(identity)), False

    def identified(self, identity: UUID) -> Q:
        """Rows that a uuid stands for, or that belong to it."""
        return reduce(or_, (Q(**{field: identity}) for field in self.uuid_fields))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        title = capfirst(str(self.opts.verbose_name_plural))
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """A row with its acts, or the page that adds one."""
        if object_id is None:
            if self.adding is None or not self.has_add_permission(request):
                raise PermissionDenied
            adding = self.adding
            return self.once(request, lambda: self.ask(request, adding, None), whole=adding.whole)
        row = self.get_object(request, unquote(object_id))
        if row is not None and self.has_view_permission(request, row):
            extra_context = {
                "title": capfirst(str(self.opts.verbose_name)),
                "subtitle": self.called(row),
                "called": self.called(row),
                "buttons": self.buttons(request, row),
                "events": self.events(row),
                **self.beside(request, row),
                **(extra_context or {}),
            }
        return super().changeform_view(request, object_id, form_url, extra_context)

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """What a page's template shows beside the row's own fields."""
        return {}

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """What happened to a row stands in the audit log."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            return self.missing(request)
        return HttpResponseRedirect(self.events(row))

    @admin.display(description=SafeString('<input type="checkbox" id="action-toggle">'))
    def action_checkbox(self, obj: Any) -> SafeString:
        return format_html(
            '<input type="checkbox" name="{}" value="{}" class="action-select" aria-label="Choose {}">',
            ACTION_CHECKBOX_NAME,
            obj.pk,
            self.called(obj),
        )

    def subject(self, row: Any) -> object:
        """What the audit log calls a row's acts by: its own key, or that of whom it belongs to."""
        return row.pk

    def events(self, row: Any) -> str:
        """The address of what happened to a row."""
        return events_of(self.subject(row))


def events_of(subject: object) -> str:
    """The address of the audit log as far as it is about one target."""
    return f"{reverse('admin:accounts_auditevent_changelist')}?{urlencode({'target_id': subject})}"


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text.strip())
    except ValueError:
        return None
