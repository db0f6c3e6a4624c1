"""Base of the operators' pages: fast lists, read-only rows, and actions.

Django's own log of edits is disabled: it would duplicate the audit log and keep the names of erased people.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, ClassVar
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

from config.console.action_views import ActionAdmin
from config.console.list_filters import FILTER, RestrictedAdmin, expanded
from config.console.navigation import label_of
from config.platform.text.forms import email_form

COUNTED_ROWS, MOST_SEARCHED = 10_000, 200  # rows, and characters


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Stops counting at 10 000 rows: counting a whole ledger takes longer than showing a page of it."""

    @cached_property
    def count(self) -> int:
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        # The keys alone: what the shown rows need beside them is not computed for all.
        return rows.order_by().values("pk")[:COUNTED_ROWS].count()


class ConsoleAdmin(RestrictedAdmin, ActionAdmin):
    """Read-only rows, with the actions that operators may take on them."""

    # The attribute that identifies a row's events in the audit log: its own key, or its owner's.
    audit_target: ClassVar[str] = "pk"
    # Fields that are looked up by index if the search term is a uuid.
    uuid_fields: ClassVar[Sequence[str]] = ()
    # Text columns that may contain a uuid, such as request ids; looked up as typed and in lower case.
    uuid_text_fields: ClassVar[Sequence[str]] = ()

    actions = ()
    change_form_template = "admin/console/row.html"
    # Names and columns; the base class allows only names.
    fields: ClassVar[Any] = None
    list_per_page = 50
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Returns whether an operator may take the list's own action, which mostly adds a row."""
        return self.add_action is not None and self.may(request, self.add_action)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return (*super().get_readonly_fields(request, obj), *filter(callable, self.fields or ()))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Searches rows by words and emails; looks up a uuid instead."""
        identity = uuid_in(search_term)
        if identity is None or not self.uuid_fields:
            term = search_term[:MOST_SEARCHED]
            found, has_duplicates = super().get_search_results(request, queryset, term)
            if "@" in term:
                found |= queryset.filter(self.email_query(email_form(term.strip())))
            return found, has_duplicates
        forms = {search_term.strip(), str(identity)}
        texts = (Q(**{f"{field}__in": forms}) for field in self.uuid_text_fields)
        return queryset.filter(reduce(or_, texts, self.uuid_query(identity))), False

    def email_query(self, form: str) -> Q:
        """The query of the rows with an email of this form in one of ``search_fields``."""
        emails = (field for field in self.search_fields if field.endswith("email"))
        return reduce(or_, (Q(**{f"{field}_form": form}) for field in emails), Q(pk__in=()))

    def uuid_query(self, identity: UUID) -> Q:
        """The query of the rows with this uuid in one of ``uuid_fields``."""
        return reduce(or_, (Q(**{field: identity}) for field in self.uuid_fields))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        if FILTER in request.GET:
            return HttpResponseRedirect(f"{request.path}?{expanded(request.GET)}")
        own = {
            "title": label_of(self.opts.label_lower),
            "add_label": self.add_action.label if self.add_action else "",
            "add_is_destructive": self.add_action is not None and self.add_action.destructive,
            **(extra_context or {}),
        }
        return super().changelist_view(request, own)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The page of the action without a row, which mostly adds one."""
        add = self.add_action
        if add is None or not self.may(request, add):
            raise PermissionDenied
        return self.once(request, lambda: self.action_page(request, add, None), atomic=add.atomic)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,  # noqa: FBT001, FBT002
        change: bool = False,  # noqa: FBT001, FBT002
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """The page of a row with its actions."""
        own = {
            "title": capfirst(str(self.opts.verbose_name)),
            "subtitle": self.row_name(obj),
            "row_name": self.row_name(obj),
            "buttons": self.buttons(request, obj),
            "events": self.audit_url(obj),
            **self.page_context(request, obj),
        }
        return super().render_change_form(request, context | own, add, change, form_url, obj)

    def page_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The template context of a row's page, beside its fields."""
        return {}

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirects to the events of a row in the audit log."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            return self.missing(request)
        return HttpResponseRedirect(self.audit_url(row))

    @admin.display(description=SafeString('<input type="checkbox" id="action-toggle">'))
    def action_checkbox(self, obj: Any) -> SafeString:
        return format_html(
            '<input type="checkbox" name="{}" value="{}" class="action-select" aria-label="Choose {}">',
            ACTION_CHECKBOX_NAME,
            obj.pk,
            self.row_name(obj),
        )

    def audit_url(self, row: Any) -> str:
        """The address of a row's events in the audit log."""
        return events_of(getattr(row, self.audit_target))


def events_of(subject: object) -> str:
    """The address of the audit log, limited to one target."""
    return f"{reverse('admin:accounts_auditevent_changelist')}?{urlencode({'target_id': subject})}"


def uuid_in(text: object) -> UUID | None:
    """Parses a uuid; None for any other text."""
    try:
        return UUID(str(text).strip())
    except ValueError:
        return None
