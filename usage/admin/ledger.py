"""The pages of the ledger, its totals and alerts."""

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from accounts.admin.exports import ExportedList
from accounts.admin.large_lists import THEIRS, LargeList
from accounts.audit import record
from accounts.models import Client, Session
from config.console.base import ConsoleAdmin
from config.console.list_filters import FILTER
from config.console.lists.columns import ChoiceFilter, exact, moment, person, right, tokens
from config.console.template_tags import cell, lasting, share
from config.platform.money import readable_dollars
from config.platform.periods import Period, last_months
from usage.admin.call_log.filters import (
    ClientFilter,
    DearerFilter,
    ErrorFilter,
    FailedFilter,
    KeyFilter,
    LabelFilter,
    ModelFilter,
    PersonFilter,
    ProviderFilter,
    SlowerFilter,
    StateFilter,
)
from usage.admin.call_log.listing import CallList, spent
from usage.admin.call_log.period import ExactPeriodFilter, PeriodFilter, with_period
from usage.admin.call_story import seconds, state_of, story
from usage.admin.corrections import LowerCharge
from usage.admin.export import lines
from usage.models import Alert, MonthlyUsage, UsageRecord
from usage.settlement import SHARE_PERCENT

MONTHS_SHOWN = 13


class MonthFilter(ChoiceFilter):
    title, parameter_name = "month", "month"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The current month and those before it, the newest first."""
        months = last_months(Period.of(timezone.now()).day, MONTHS_SHOWN)
        return [(f"{each:%Y-%m}", f"{each:%Y-%m}") for each in months]

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(period=f"{value}-01")


@admin.register(UsageRecord)
class UsageRecordAdmin(ExportedList, LargeList):
    row_actions = (LowerCharge(),)
    change_form_template = "admin/console/call.html"
    change_list_template = "admin/console/call_log.html"
    export_name = "calls"
    list_display = (
        exact("opened_at", "time"),
        person(),
        "client",
        "model",
        "outcome",
        tokens("input_tokens", "in"),
        tokens("output_tokens", "out"),
        "costs",
        "took",
    )
    list_filter = (
        PeriodFilter,
        StateFilter,
        ErrorFilter,
        ClientFilter,
        ModelFilter,
        ProviderFilter,
        PersonFilter,
        FailedFilter,
        LabelFilter,
        KeyFilter,
        SlowerFilter,
        DearerFilter,
        ExactPeriodFilter,
    )
    # Of addresses that operators keep.
    link_lookups = ("source__exact",)
    search_placeholder = "Person, client or request id"
    search_help_text = (
        f"{THEIRS}, a client’s name, a model, a request id, or an id of another kind."
    )
    uuid_fields = ("id", "user_id", "client_id", "key_id")
    uuid_text_fields = ("request_id",)
    fields = ("id",)

    @admin.display(description="client")
    def client(self, row: UsageRecord) -> str:
        """The client at the time."""
        return str(getattr(row, "client_name", ""))

    @admin.display(description="state")
    def outcome(self, row: UsageRecord) -> str:
        return cell(state_of(row, now=timezone.now()))

    @admin.display(description="cost")
    def costs(self, row: UsageRecord) -> str:
        settled = "no price" if row.cost is None else readable_dollars(row.cost, 4)
        return right(settled if row.settled_at else "held")

    @admin.display(description="took")
    def took(self, row: UsageRecord) -> str:
        lasted = seconds(row, row.settled_at or timezone.now())
        return right(lasting(lasted))

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[CallList]:
        return CallList

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        if FILTER not in request.GET:
            request.GET = with_period(request.GET)  # type: ignore[assignment]
        response = super().changelist_view(request, extra_context)
        if cl := (getattr(response, "context_data", None) or {}).get("cl"):
            response.context_data["spent"] = spent(cl, request)
        return response

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """As in every large list; a client's whole name finds its calls alone, which its index has in order."""
        client = Client.objects.filter(name__iexact=search_term.strip()).values_list(
            "pk", flat=True
        )
        if search_term.strip() and (found := list(client[:2])):
            return queryset.filter(client_id__in=found), False
        return super().get_search_results(request, queryset, search_term)

    def page_context(self, request: HttpRequest, row: UsageRecord) -> dict[str, Any]:
        return story(row, now=timezone.now())

    def export(self, rows: QuerySet[UsageRecord], *, ending: str) -> Iterator[bytes]:
        return lines(rows, ending=ending)

    def note_export(self, **inputs: Any) -> None:
        record("usage:exported", **inputs)

    def named(self, term: str) -> Q:
        return Q(model=term) | Q(request_id=term)

    def uuid_query(self, identity: UUID) -> Q:
        # A session's calls are found by its person, while the session exists: an index would burden every call.
        person = Session.objects.filter(pk=identity).values_list("user_id", flat=True).first()
        either = super().uuid_query(identity)
        return either | Q(user=person, session_id=identity) if person else either


class NearCap(ChoiceFilter):
    """By the caps of the latest admission."""

    title, parameter_name = "share of a cap", "near"
    choices_of = ((str(SHARE_PERCENT), f"{SHARE_PERCENT} % or more"), ("100", "all of it"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        near = (
            Q(**{f"{kind}_cap__gt": 0, f"{kind}_used__gte": F(f"{kind}_cap") * int(value) / 100})
            for kind in ("input", "output")
        )
        return rows.filter(reduce(or_, near), period=Period.of(timezone.now()).month)


@admin.register(MonthlyUsage)
class MonthlyUsageAdmin(LargeList):
    list_display = (
        "month",
        person(),
        tokens("input_used", "input"),
        tokens("input_reserved", "held"),
        "of_input",
        tokens("output_used", "output"),
        tokens("output_reserved", "held"),
        "of_output",
        "day",
        tokens("day_used", "that day"),
        tokens("day_reserved", "held"),
    )
    list_filter = (MonthFilter, NearCap)
    list_select_related = ("user",)
    ordering = ("-period", "-pk")
    search_help_text = f"{THEIRS}, or the id of a person."
    uuid_fields = ("user_id",)
    fields = list_display
    readonly_fields = ("month", "of_input", "of_output")

    @admin.display(description="month", ordering="period")
    def month(self, row: MonthlyUsage) -> str:
        return f"{row.period:%Y-%m}"

    @admin.display(description="of the input cap")
    def of_input(self, row: MonthlyUsage) -> str:
        return share(row.input_used, row.input_cap)

    @admin.display(description="of the output cap")
    def of_output(self, row: MonthlyUsage) -> str:
        return share(row.output_used, row.output_cap)


@admin.register(Alert)
class AlertAdmin(ConsoleAdmin):
    list_display = (
        moment("noticed_at", "noticed"),
        "kind",
        person(),
        "period",
        tokens("used"),
        tokens("cap"),
        moment("told_at", "mail queued"),
    )
    list_filter = ("kind", "noticed_at")
    list_select_related = ("user",)
    search_fields = ("user__email",)
    uuid_fields = ("user_id",)
    audit_target = "user_id"
    fields = (*list_display, "call")
    readonly_fields = ("call",)

    @admin.display
    def call(self, row: Alert) -> str:
        if row.record_id is None:
            return ""
        page = reverse("admin:usage_usagerecord_change", args=[row.record_id])
        return format_html('<a href="{}">{}</a>', page, row.record_id)
