"""The pages of the ledger, its totals and alerts."""

from collections.abc import Iterator
from datetime import datetime
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
from accounts.models import Session
from config.console.base import ConsoleAdmin
from config.console.lists.columns import ChoiceFilter, exact, moment, person, right, tokens
from config.console.template_tags import cell, share
from config.platform.money import readable_dollars
from usage.admin.call_story import ENDS, seconds, state_of, story
from usage.admin.corrections import LowerCharge
from usage.admin.export import lines
from usage.models import Alert, MonthlyUsage, UsageRecord
from usage.periods import Period, last_months
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


class AdmissionFilter(MonthFilter):
    """Filters by the time of admission, whose index also gives the order of the list."""

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        period = Period.of(datetime.fromisoformat(f"{value}-01T00:00:00Z"))
        return rows.filter(opened_at__gte=period.month_start, opened_at__lt=period.next_month)


class StateFilter(ChoiceFilter):
    title, parameter_name = "state", "is"
    choices_of = (("open", "Running"), *((end, chip.word) for end, chip in ENDS.items()))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(**{"state" if value == UsageRecord.State.OPEN else "end": value})


@admin.register(UsageRecord)
class UsageRecordAdmin(ExportedList, LargeList):
    row_actions = (LowerCharge(),)
    change_form_template = "admin/console/call.html"
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
    list_filter = (StateFilter, AdmissionFilter, "opened_at")
    # Of links of the console, and of addresses that operators keep.
    link_lookups = (
        "user__id__exact",
        "client_id__exact",
        "end__exact",
        "state__exact",
        "source__exact",
    )
    list_select_related = ("user__client",)
    search_help_text = f"{THEIRS}, a model, a request id, or the id of a record, a user, a client, a session or a key."
    uuid_fields = ("id", "user_id", "client_id", "key_id")
    uuid_text_fields = ("request_id",)
    fields = ("id",)

    @admin.display(description="client")
    def client(self, row: UsageRecord) -> str:
        """The client at the time."""
        theirs = row.user.client
        return str(theirs) if theirs and theirs.pk == row.client_id else str(row.client_id)[:8]

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
        return right(f"{lasted:.1f} s")

    def page_context(self, request: HttpRequest, row: UsageRecord) -> dict[str, Any]:
        return story(row, now=timezone.now())

    def export(self, rows: QuerySet[UsageRecord], *, ending: str) -> Iterator[bytes]:
        return lines(rows, ending=ending)

    def note_export(self, **given: Any) -> None:
        record("usage:exported", **given)

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
