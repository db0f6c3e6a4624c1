"""A person's page: identity, sessions, usage, and the actions on them."""

from collections.abc import Iterable
from datetime import datetime
from itertools import accumulate
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from accounts.admin.audit import events_about, events_of_person, ids_of_person
from accounts.admin.factors import MakeSetUpCode, ResetFactor
from accounts.admin.joining import InviteAgain, joined
from accounts.admin.leaving import ChangeEmail, Erase, Move
from accounts.admin.operators import ChangeRoles, DismissOperator, MakeOperator, role_names
from accounts.admin.passwords import SendReset, SetOneTimePassword
from accounts.admin.people import AddPerson, Disable, Enable, RevokeAll
from accounts.admin.person_action import PersonAction
from accounts.models import AuditEvent, Session, User
from accounts.people.access import delete_user
from accounts.people.operators import may_touch
from accounts.sessions.known_places import mark_new_networks
from config.composition.devices import device_use, devices_of, table_of
from config.composition.person_state import StateFilter, chip_of, with_state
from config.console.actions import Result
from config.console.base import ConsoleAdmin
from config.console.charts import Bar, Chart, Curve, days_axis
from config.console.lists.columns import moment, right
from config.console.navigation import page_of
from config.console.tables import Link, Table
from config.console.template_tags import cell, dollars, instant, short
from config.platform.periods import Period
from licensing.callers import load_signed_out
from licensing.models import Licence
from llmproxy.calls.explanation import EXPLAINING, explain
from llmproxy.models import LanguageModel, PersonalKey
from releases.admin.levers import sentences_of
from usage.admin.attempts import cause, latest_failed
from usage.admin.calls import RestartModelCalls, StopModelCalls
from usage.admin.refusals import in_two_weeks
from usage.limits import PlanCaps
from usage.models import Alert, MonthlyUsage, Override, RunningCall
from usage.spending.columns import spent_by_person
from usage.spending.summaries import Summary, summary
from usage.spending.sums import Scope, total
from usage.stops import stop_of

SESSIONS_SHOWN = 20
CALLS_SHOWN = 20


class Delete(PersonAction):
    name = "remove"
    label = "Delete"
    question = "Delete {name}?"
    destructive = True
    locks_out = True

    def available(self, target: User, *, by: HttpRequest) -> bool:
        # A person with usage in the ledger can be erased instead; the rule refuses the deletion as well.
        used = MonthlyUsage.objects.filter(user=target).exists()
        return not used and super().available(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"{target} is removed with all sessions and tokens. This cannot be undone."

    def do(self, target: User, **inputs: Any) -> Result:
        delete_user(user_id=target.pk, **inputs)
        return Result(f"{target} has been deleted.")


@admin.register(User)
class PersonAdmin(ConsoleAdmin):
    row_actions = (
        SendReset(),
        RevokeAll(),
        StopModelCalls(),
        RestartModelCalls(),
        SetOneTimePassword(),
        InviteAgain(),
        ChangeEmail(),
        Move(),
        MakeOperator(),
        ChangeRoles(),
        DismissOperator(),
        MakeSetUpCode(),
        ResetFactor(),
        Enable(),
        Disable(),
        Delete(),
        Erase(),
    )
    add_action = AddPerson()
    change_form_template = "admin/console/person.html"
    list_display = ("email", "state", "of_client", "seen", "spent", moment("created_at"))
    list_filter = (StateFilter, "is_staff")
    link_lookups = ("client__id__exact",)
    search_fields = ("email", "client__name")
    uuid_fields = ("id", "client_id")
    fields = ("id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        people = super().get_queryset(request)
        return people.select_related("client__licence__plan", "model_calls_stop")

    def listed(self, request: HttpRequest, rows: QuerySet[User]) -> QuerySet[User]:
        now = timezone.now()
        found: QuerySet[User] = with_state(rows, now=now).annotate(spent=spent_by_person(now=now))
        return found

    def get_list_display(self, request: HttpRequest) -> Any:
        hidden = set() if request.user.has_perm("usage.view_monthlyusage") else {"spent"}
        return [each for each in self.list_display if each not in hidden]

    @admin.display(description="status")
    def state(self, user: Any) -> str:
        return cell(chip_of(user))

    @admin.display(description="client", ordering="client__name")
    def of_client(self, user: User) -> str:
        return cell(Link(str(user.client), page_of(user.client))) if user.client else ""

    @admin.display(description="last seen")
    def seen(self, user: Any) -> str:
        return instant(user.last_seen) if user.last_seen else ""

    @admin.display(description="spent this month")
    def spent(self, user: Any) -> str:
        return right(dollars(user.spent))

    def row_name(self, row: User) -> str:
        return f"Erased person {str(row.pk)[:8]}" if row.erased_at else str(row)

    def buttons(self, request: HttpRequest, row: User) -> list[dict[str, Any]]:
        return [] if row.erased_at else super().buttons(request, row)

    def audit_url(self, row: User) -> str:
        return events_of_person(row.pk)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.explain)
        name = "accounts_user_explain"
        return [path("<path:object_id>/explain/", view, name=name), *super().get_urls()]

    def explain(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Explains whether a call of this person would be admitted now, by the rules that admit calls."""
        row = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, row) or not request.user.has_perms(EXPLAINING):
            raise PermissionDenied
        if row is None or row.client_id is None:
            return self.missing(request)
        own = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": f"Can {row} call models?",
            "original": row,
            **self._explained(request, row, now=timezone.now()),
            "device_use": device_use(row, now=timezone.now()),
            **_latest_failure(request, row, now=timezone.now()),
            "notices": [*sentences_of(load_signed_out(user_id=row.pk))],
        }
        return TemplateResponse(request, "admin/console/explain_person.html", own)

    def _explained(self, request: HttpRequest, row: User, *, now: datetime) -> dict[str, Any]:
        """Returns the explanation for a client's person, if the operator may view the data that it reads."""
        if row.client_id is None or not request.user.has_perms(EXPLAINING):
            return {}
        keys = list(PersonalKey.objects.filter(user=row).live(at=now))
        key = next((each for each in keys if str(each.pk) == request.GET.get("key")), None)
        model = request.GET.get("model", "")[:120].replace("\0", "")
        names = LanguageModel.objects.filter(is_on=True).values_list("name", flat=True)
        decided = AuditEvent.objects.filter(
            action="licence:operator_set", target_id=str(row.client_id)
        )
        overrides = self.admin_site.get_model_admin(Override)
        explained = explain(user=row, now=now, model=model, key=key)
        may_grant = may_touch(request, row) and overrides.has_add_permission(request)
        return {
            "explained": explained,
            "prominent": [each for each in explained.shown if each.problem or each.is_close],
            "passing": [each for each in explained.shown if not (each.problem or each.is_close)],
            "models": sorted({*names, settings.LLM_DEFAULT_MODEL}),
            "keys": keys,
            "key": key,
            "suspended_by": decided.values_list("actor", flat=True).first(),
            "granting": f"{reverse('admin:usage_override_add')}?user={row.pk}" if may_grant else "",
            "checked_at": now,
        }

    def _devices(self, request: HttpRequest, row: User, *, now: datetime) -> Table | None:
        if not request.user.has_perm("accounts.view_session"):
            return None
        devices = devices_of(Session.objects.filter(user=row), now=now)
        return table_of(devices, by=request, whose=False) if devices else None

    def page_context(self, request: HttpRequest, row: User) -> dict[str, Any]:
        now = timezone.now()
        live = Session.objects.filter(user=row).live(at=now).select_related("user")
        sessions = list(live.order_by("-last_used_at")[:SESSIONS_SHOWN])
        mark_new_networks(sessions, of=row.pk)
        overrides = Override.objects.filter(user=row, starts_at__lte=now, ends_at__gt=now)
        month, period = _month(row, now=now), Period.of(now)
        costs = Scope(user_id=row.pk).by_day(period.month, period.day)
        return {
            **self._explained(request, row, now=now),
            "live": sessions,
            "live_number": live.count() if len(sessions) == SESSIONS_SHOWN else len(sessions),
            "month": month,
            "curve": month and _curve(month),
            "shares": month
            and [("Input", month.input), ("Output", month.output), ("Today", month.day)],
            "cost": total(costs.values()).cost,
            **in_two_weeks(now=now, lookup="user__id__exact", value=row.pk),
            "overrides": overrides.select_related("user"),
            "alerts": Alert.objects.filter(user=row, period__gte=period.month),
            "devices": self._devices(request, row, now=now),
            "device_use": device_use(row, now=now),
            "joined": joined(row, now=now),
            "roles": role_names(row) if row.is_staff else "",
            "stop": stop_of(row, now=now),
            "calls": RunningCall.objects.filter(user=row).select_related("user")[:CALLS_SHOWN],
            "recent_events": events_about(ids_of_person(row.pk)),
        }


def _latest_failure(request: HttpRequest, row: User, *, now: datetime) -> dict[str, Any]:
    """Returns the latest call that was admitted and failed, which no rule of admission explains."""
    if not request.user.has_perm("usage.view_usagerecord"):
        return {}
    call = latest_failed(row.pk, now=now)
    return {"failed": call, "cause": cause(call)} if call else {}


def _month(user: User, *, now: datetime) -> Summary | None:
    """Returns this month's usage of a client's person."""
    licence: Licence | None = getattr(user.client, "licence", None)
    if licence is None:
        return None
    return summary(user_id=user.pk, plan=PlanCaps.of(licence.plan), now=now)


def _curve(month: Summary) -> Chart:
    """Returns the month's cumulative input by day, against its cap."""
    inputs = {each["day"]: each["input"] for each in month.by_day}
    days, today = month.period.days, month.period.day
    sums = accumulate(inputs.get(day, 0) for day in days if day <= today)
    bars = [Bar(f"{day:%-d %b}", total) for day, total in zip(days, sums, strict=False)]
    cap = month.input.cap
    line = None if cap is None else (cap, f"{short(cap)} cap")
    axis = days_axis(days, today=today)
    return Chart("Input tokens this month", [Curve(bars, "tokens", line)], axis)


# Roles are groups, which actions on a person assign; config.composition.roles has their rights.
admin.site.unregister(Group)
