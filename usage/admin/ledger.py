"""The pages of the ledger, its totals and alerts."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join

from accounts.admin.exports import ExportedList
from accounts.admin.large_lists import THEIRS, LargeList
from accounts.audit import record
from accounts.models import Session
from config.console.base import ConsoleAdmin
from config.console.columns import ChoiceFilter, dollars, moment, tokens, yes_no
from config.money import in_dollars
from usage.admin.corrections import LowerCharge
from usage.admin.export import lines
from usage.models import Alert, MonthlyUsage, UsageRecord
from usage.periods import Period
from usage.statements import attempts_of

MONTHS_SHOWN = 13


class MonthFilter(ChoiceFilter):
    title, parameter_name = "month", "month"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The current month and those before it, the newest first."""
        first = Period.of(timezone.now()).month
        newest = first.year * 12 + first.month - 1
        months = (divmod(newest - back, 12) for back in range(MONTHS_SHOWN))
        names = [f"{year:04}-{month + 1:02}" for year, month in months]
        return [(each, each) for each in names]

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(period=f"{value}-01")


class AdmissionFilter(MonthFilter):
    """Filters by the time of admission, whose index also gives the order of the list."""

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        period = Period.of(datetime.fromisoformat(f"{value}-01T00:00:00Z"))
        return rows.filter(opened_at__gte=period.month_start, opened_at__lt=period.next_month)


@admin.register(UsageRecord)
class UsageRecordAdmin(ExportedList, LargeList):
    row_actions = (LowerCharge(),)
    export_name = "calls"
    list_display = (
        moment("opened_at"),
        "user",
        "model",
        "state",
        tokens("input_tokens"),
        tokens("output_tokens"),
        dollars("cost"),
        "source",
        "end",
        yes_no("streamed", "streamed"),
    )
    list_filter = ("state", "end", "source", AdmissionFilter, "opened_at")
    link_lookups = ("user__id__exact",)
    list_select_related = ("user",)
    search_help_text = f"{THEIRS}, a model, a request id, or the id of a record, a user, a client, a session or a key."
    uuid_fields = ("id", "user_id", "client_id", "key_id")
    uuid_text_fields = ("request_id",)
    fields = (
        "id",
        "user",
        "client_id",
        "session_id",
        "key_id",
        "period",
        "day",
        "model",
        "provider",
        "abandoned_attempts",
        "request_id",
        "labels",
        yes_no("streamed", "streamed"),
        yes_no("is_implausible", "implausible report"),
        "state",
        tokens("reserved_input"),
        tokens("reserved_output"),
        tokens("input_tokens"),
        tokens("cached_input_tokens"),
        tokens("capped_input", "input towards the caps"),
        tokens("cache_write_tokens"),
        tokens("output_tokens"),
        tokens("reasoning_tokens"),
        tokens("counted_input"),
        dollars("input_price", "price of a million input tokens"),
        dollars("cached_input_price", "of cached ones"),
        dollars("cache_write_price", "of those written to a cache"),
        dollars("output_price", "of output tokens"),
        dollars("cost"),
        "charged_first",
        "source",
        "end",
        tokens("checkpoint_input"),
        tokens("checkpoint_output"),
        moment("checkpoint_at"),
        moment("opened_at"),
        moment("first_byte_at"),
        moment("expires_at"),
        moment("settled_at"),
    )

    readonly_fields = ("abandoned_attempts", "charged_first")

    @admin.display(description="charged before it was lowered")
    def charged_first(self, row: UsageRecord) -> str:
        found = row.as_settled
        if found is None:
            return ""
        cost = "" if found["cost"] is None else f", {in_dollars(found['cost'], 6)}"
        return f"{found['input_tokens']:,} of input, {found['output_tokens']:,} of output{cost}"

    @admin.display(description="abandoned attempts")
    def abandoned_attempts(self, row: UsageRecord) -> str:
        """The attempts of which other providers may bill, at the client's cost."""
        return format_html_join(
            "; ",
            "{} after {} s{}",
            (
                (
                    each.provider,
                    round((each.abandoned_at - each.asked_at).total_seconds()),
                    "" if each.cost is None else f", up to {in_dollars(each.cost, 6)}",
                )
                for each in attempts_of([row])[row.pk]
            ),
        )

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


@admin.register(MonthlyUsage)
class MonthlyUsageAdmin(LargeList):
    list_display = (
        "month",
        "user",
        tokens("input_used"),
        tokens("input_reserved"),
        tokens("output_used"),
        tokens("output_reserved"),
        "day",
        tokens("day_used"),
        tokens("day_reserved"),
    )
    list_filter = (MonthFilter,)
    list_select_related = ("user",)
    ordering = ("-period", "-pk")
    search_help_text = f"{THEIRS}, or the id of a user."
    uuid_fields = ("user_id",)
    fields = list_display
    readonly_fields = ("month",)

    @admin.display(description="month", ordering="period")
    def month(self, row: MonthlyUsage) -> str:
        return f"{row.period:%Y-%m}"


@admin.register(Alert)
class AlertAdmin(ConsoleAdmin):
    list_display = (
        moment("noticed_at", "noticed"),
        "kind",
        "user",
        "period",
        tokens("used"),
        tokens("cap"),
        moment("told_at", "mail queued"),
    )
    list_filter = ("kind", "noticed_at")
    list_select_related = ("user",)
    search_fields = ("user__email",)
    uuid_fields = ("user_id",)
    fields = (*list_display, "call")
    readonly_fields = ("call",)

    @admin.display
    def call(self, row: Alert) -> str:
        if row.record_id is None:
            return ""
        page = reverse("admin:usage_usagerecord_change", args=[row.record_id])
        return format_html('<a href="{}">{}</a>', page, row.record_id)

    def audit_target(self, row: Alert) -> object:
        return row.user_id or row.pk
