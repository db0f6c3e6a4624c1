"""What all pages of the operators' console have in common: lists that stay quick, rows to look at, acts.

A row is never edited in place and Django's own log of edits is not kept, because it would be a second truth
beside the audit log, and would keep the names of erased people.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from accounts.acts import Act, ActOnSeveral, show_refusal
from accounts.models import AuditEvent
from accounts.operators import actor_of
from accounts.templatetags.console import instant
from config.problems import Problem

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:
    _ModelAdmin = admin.ModelAdmin
    _Paginator = Paginator

COUNTED_ROWS = 10_000
MOST_CHOSEN = 500
EVENTS_SHOWN = 10


class BoundedPaginator(_Paginator):
    """Counts to 10 000 and no further: counting a whole ledger takes longer than showing it."""

    @cached_property
    def count(self) -> int:
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        return rows.order_by()[:COUNTED_ROWS].count()


class OneOf(admin.SimpleListFilter):
    """A filter of fixed choices, which asks the database nothing to show itself."""

    choices_of: ClassVar[Sequence[tuple[str, str]]] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return self.choices_of

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        known = value is not None and value in dict(self.lookup_choices)
        return self.narrowed(queryset, value) if known and value is not None else queryset

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The rows of one choice."""
        raise NotImplementedError


class ConsoleAdmin(_ModelAdmin):
    """Rows to look at. What may be done to them are acts; without any, they are read-only."""

    acts: ClassVar[Sequence[Act]] = ()
    adding: ClassVar[Act | None] = None
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
        either = (Q(**{field: identity}) for field in self.uuid_fields)
        return queryset.filter(reduce(or_, either)), False

    def may(self, request: HttpRequest, act: Act) -> bool:
        """Whether this operator may do this to rows of this model at all."""
        label, model = self.opts.app_label, self.opts.model_name
        return request.user.has_perm(f"{label}.{act.permission}_{model}")

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path(f"<path:object_id>/{act.name}/", wrap(self._one(act)), name=self._route(act))
            for act in self.acts
        ]
        own += [
            path(f"{act.name}/", wrap(self._several(act)), name=f"{self._route(act)}_several")
            for act in self.acts
            if isinstance(act, ActOnSeveral)
        ]
        return own + super().get_urls()

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """The acts that can be done to several rows at once, as a list's actions."""
        return {
            act.name: (_action(act), act.name, act.label)
            for act in self.acts
            if isinstance(act, ActOnSeveral) and self.may(request, act)
        }

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
            return self._perform(request, self.adding, None)
        row = self.get_object(request, unquote(object_id))
        if row is not None:
            extra_context = {
                "title": capfirst(str(self.opts.verbose_name)),
                "subtitle": self.called(row),
                "called": self.called(row),
                "buttons": self._buttons(request, row),
                "events": events_of(self.subject(row)),
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
        row = self.get_object(request, unquote(object_id))
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        return HttpResponseRedirect(events_of(self.subject(row)))

    def called(self, row: Any) -> str:
        """How a row is called wherever the console speaks of it."""
        return str(row)

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

    def _buttons(self, request: HttpRequest, row: Any) -> list[dict[str, Any]]:
        return [
            {
                "label": act.label,
                "grave": act.grave,
                "url": reverse(f"admin:{self._route(act)}", args=[row.pk]),
            }
            for act in self.acts
            if self.may(request, act) and act.offered(row, by=request)
        ]

    def _route(self, act: Act) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{act.name}"

    def _one(self, act: Act) -> Callable[..., HttpResponse]:
        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            if not self.may(request, act):
                raise PermissionDenied
            row = self.get_object(request, unquote(object_id))
            if row is None:
                return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
            if not act.offered(row, by=request):
                self.message_user(request, "That is not possible any more.", messages.WARNING)
                return HttpResponseRedirect(page_of(row))
            return self._perform(request, act, row)

        return view

    def _several(self, act: ActOnSeveral) -> Callable[..., HttpResponse]:
        def view(request: HttpRequest) -> HttpResponse:
            if not self.may(request, act):
                raise PermissionDenied
            chosen = self.get_queryset(request).filter(pk__in=request.POST.getlist("target"))
            rows = [row for row in chosen if act.offered(row, by=request)]
            if not rows:
                return HttpResponseRedirect(self._list())
            return self.perform_on_all(request, act, rows, asked="target" in request.POST)

        return view

    def _perform(self, request: HttpRequest, act: Act, row: Any) -> HttpResponse:
        """Asks, and on a good answer does it."""
        form = act.form(row, request.POST if request.method == "POST" else None, by=request)
        if request.method == "POST" and form.is_valid():
            try:
                done = act.do(row, form.cleaned_data, by=actor_of(request), now=timezone.now())
            except Problem as problem:
                show_refusal(form, problem)
            else:
                self.message_user(request, done.said, messages.SUCCESS)
                return HttpResponseRedirect(page_of(done.then) if done.then else self._list())
        return self._page(request, act, form, rows=[] if row is None else [row])

    def perform_on_all(
        self, request: HttpRequest, act: ActOnSeveral, rows: Sequence[Any], *, asked: bool
    ) -> HttpResponse:
        """The same for several rows; ``asked`` once this page has been shown."""
        form = act.form(None, request.POST if asked else None, by=request)
        if asked and form.is_valid():
            try:
                said = act.do_all(rows, form.cleaned_data, by=actor_of(request), now=timezone.now())
            except Problem as problem:
                show_refusal(form, problem)
            else:
                self.message_user(request, said, messages.SUCCESS)
                return HttpResponseRedirect(self._list())
        context = {
            "several": [(row.pk, self.called(row)) for row in rows],
            "form_address": reverse(f"admin:{self._route(act)}_several"),
        }
        return self._page(request, act, form, rows=rows, **context)

    def _page(
        self, request: HttpRequest, act: Act, form: Any, *, rows: Sequence[Any], **context: Any
    ) -> HttpResponse:
        one = rows[0] if rows and "several" not in context else None
        called = self.called(one) if one is not None else ""
        return TemplateResponse(
            request,
            "admin/console/act.html",
            {
                **self.admin_site.each_context(request),
                "opts": self.opts,
                "title": act.label,
                "heading": f"{act.label}: {called}" if called else act.label,
                "called": called,
                "act": act,
                "effects": act.effects(one),
                "form": form,
                "media": self.media + form.media,
                "back": page_of(one) if one is not None else self._list(),
                **context,
            },
        )

    def _list(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")


def _action(act: ActOnSeveral) -> Callable[..., HttpResponse | None]:
    def ask(
        console: ConsoleAdmin, request: HttpRequest, rows: QuerySet[Any]
    ) -> HttpResponse | None:
        chosen = [row for row in rows[: MOST_CHOSEN + 1] if act.offered(row, by=request)]
        if len(chosen) > MOST_CHOSEN:
            console.message_user(request, f"At most {MOST_CHOSEN} at once.", messages.WARNING)
            return None
        if not chosen:
            console.message_user(request, "Nothing you chose allows that.", messages.WARNING)
            return None
        return console.perform_on_all(request, act, chosen, asked=False)

    return ask


def page_of(row: Model) -> str:
    """The address of a row's page in the console."""
    meta = row._meta  # noqa: SLF001 - Django's documented API
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])


def events_of(subject: object) -> str:
    """The address of the audit log as far as it is about one target."""
    return f"{reverse('admin:accounts_auditevent_changelist')}?{urlencode({'target_id': subject})}"


def events_about(ids: Sequence[object]) -> QuerySet[AuditEvent]:
    """The newest of what happened to some rows."""
    return AuditEvent.objects.filter(target_id__in=[str(each) for each in ids])[:EVENTS_SHOWN]


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


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text.strip())
    except ValueError:
        return None
