"""The ledger and its totals, to look at; overrides, to grant and to end."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts.admin.fields import PersonField
from accounts.admin.large_lists import THEIRS, LargeList
from accounts.audit import Actor
from accounts.models import Session
from config.console.actions import Action, ReasonForm, Result, UtcDateTimeField
from config.console.base import ConsoleAdmin
from config.console.columns import ChoiceFilter, moment, tokens, yes_no
from usage.models import Alert, MonthlyUsage, Override, UsageRecord
from usage.overrides import Allowance, end_override, grant_extra, grant_override
from usage.periods import Period

MONTHS_SHOWN = 13


class MonthFilter(admin.SimpleListFilter):
    title, parameter_name = "month", "month"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(each, each) for each in _last_months(MONTHS_SHOWN)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        month = self.value()
        if month is None or month not in _last_months(MONTHS_SHOWN):
            return queryset
        return self.filtered(queryset, Period.of(datetime.fromisoformat(f"{month}-01T00:00:00Z")))

    def filtered(self, rows: QuerySet[Any], period: Period) -> QuerySet[Any]:
        return rows.filter(period=period.month)


class AdmissionFilter(MonthFilter):
    """The same by the moment of admission, along which the ledger is listed: no month before it is looked through."""

    def filtered(self, rows: QuerySet[Any], period: Period) -> QuerySet[Any]:
        return rows.filter(opened_at__gte=period.month_start, opened_at__lt=period.next_month)


@admin.register(UsageRecord)
class UsageRecordAdmin(LargeList):
    list_display = (
        moment("opened_at"),
        "user",
        "model",
        "state",
        tokens("input_tokens"),
        tokens("output_tokens"),
        "source",
        "end",
        yes_no("streamed", "streamed"),
    )
    list_filter = (
        "state",
        "end",
        "source",
        AdmissionFilter,
        ("opened_at", admin.DateFieldListFilter),
    )
    link_lookups = ("user__id__exact",)
    list_select_related = ("user",)
    search_help_text = (
        f"{THEIRS}, a model, a request id, or the id of a record, a user, a client or a session."
    )
    uuid_fields = ("id", "user_id", "client_id")
    fields = (
        "id",
        "user",
        "client_id",
        "session_id",
        "period",
        "day",
        "model",
        "provider",
        "request_id",
        yes_no("streamed", "streamed"),
        "state",
        tokens("reserved_input"),
        tokens("reserved_output"),
        tokens("input_tokens"),
        tokens("cached_input_tokens"),
        tokens("output_tokens"),
        tokens("reasoning_tokens"),
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

    def named(self, term: str) -> Q:
        return Q(model=term) | Q(request_id=term)

    def uuid_query(self, identity: UUID) -> Q:
        # By whose it is, for as long as that is known: a ledger with an index for this would pay for it at every call.
        whose = Session.objects.filter(pk=identity).values_list("user_id", flat=True).first()
        either = super().uuid_query(identity)
        return either | Q(user=whose, session_id=identity) if whose else either


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
    list_filter = ("kind", ("noticed_at", admin.DateFieldListFilter))
    list_select_related = ("user",)
    search_fields = ("user__email",)
    uuid_fields = ("user_id",)
    fields = list_display

    def audit_target(self, row: Alert) -> object:
        return row.user_id or row.pk


class OverrideForm(ReasonForm):
    user = PersonField(help_text="By email.")
    monthly_input_tokens = forms.IntegerField(min_value=0, required=False)
    monthly_output_tokens = forms.IntegerField(min_value=0, required=False)
    daily_tokens = forms.IntegerField(
        min_value=0, required=False, help_text="Both kinds together, per UTC day."
    )
    ends_at = UtcDateTimeField(label="Until (UTC)")
    on_top = forms.ChoiceField(
        label="These numbers count",
        choices=(
            ("", "instead of the plan's"),
            ("yes", "on top, as an extra allowance for this month"),
        ),
        required=False,
        widget=forms.RadioSelect,
        help_text="On top: until the end of this month at most.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.order_fields(["user", "on_top"])


class GrantOverride(Action):
    name = "add"
    label = "Grant override"
    permission = "add"
    form_class = OverrideForm

    def effects(self, target: None) -> Iterable[str]:
        yield "What is chosen counts for this one person, from the next model call on, until its end."
        yield "Instead of the plan's: an empty number is the plan's, 0 stops model calls, and the latest counts alone."
        yield "On top: added to whatever else counts, and several add up. The daily limit may have to grow as well."

    def initial(self, target: None, *, by: HttpRequest) -> dict[str, Any]:
        on_top = "yes" if by.GET.get("on_top") == "yes" else ""
        ends_at = Period.of(timezone.now()).next_month if on_top else None
        return {"user": by.GET.get("user"), "on_top": on_top, "ends_at": ends_at}

    def do(self, target: None, *, by: Actor, now: datetime, **given: Any) -> Result:
        numbers = ("monthly_input_tokens", "monthly_output_tokens", "daily_tokens")
        grant, what = (
            (grant_extra, "extra allowance") if given["on_top"] else (grant_override, "override")
        )
        override = grant(
            user_id=given["user"].pk,
            allowance=Allowance(**{name: given[name] for name in numbers}),
            ends_at=given["ends_at"],
            reason=given["reason"],
            by=by,
            now=now,
        )
        return Result(f"The {what} for {given['user']} is in force.", override)


class EndOverride(Action):
    name = "end"
    label = "End override"
    destructive = True

    def available(self, target: Override, *, by: HttpRequest) -> bool:
        return target.ends_at > timezone.now()

    def effects(self, target: Override) -> Iterable[str]:
        if target.is_extra:
            yield "From the next model call on its numbers are no longer added."
        else:
            yield "From the next model call on the plan's numbers count, or those of an earlier override in force."

    def do(self, target: Override, **given: Any) -> Result:
        end_override(override_id=target.pk, **given)
        what = "extra allowance" if target.is_extra else "override"
        return Result(f"The {what} for {target.user} has ended.", target)


class InForce(ChoiceFilter):
    title, parameter_name = "in force", "in_force"
    choices_of = (("yes", "now"), ("no", "not now"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        now = timezone.now()
        in_force = {"starts_at__lte": now, "ends_at__gt": now}
        return rows.filter(**in_force) if value == "yes" else rows.exclude(**in_force)


@admin.register(Override)
class OverrideAdmin(ConsoleAdmin):
    row_actions = (EndOverride(),)
    add_action = GrantOverride()
    list_display = (
        "user",
        yes_no("is_extra", "on top"),
        tokens("monthly_input_tokens"),
        tokens("monthly_output_tokens"),
        tokens("daily_tokens"),
        moment("starts_at"),
        moment("ends_at"),
        "reason",
    )
    list_filter = (InForce, "is_extra")
    list_select_related = ("user",)
    date_hierarchy = "ends_at"
    search_fields = ("user__email", "reason")
    uuid_fields = ("user_id",)
    fields = list_display

    def audit_target(self, row: Override) -> object:
        return row.user_id


def _last_months(number: int) -> list[str]:
    """The current month and those before it, as ``YYYY-MM``, newest first."""
    first = Period.of(timezone.now()).month
    months = first.year * 12 + first.month - 1
    return [f"{each // 12:04}-{each % 12 + 1:02}" for each in range(months, months - number, -1)]
