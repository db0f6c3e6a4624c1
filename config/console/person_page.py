"""A person's page: identity, sessions, usage, and the actions on them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group
from django.http import HttpRequest
from django.utils import timezone

from accounts.admin.audit import events_about, events_of_person, ids_of_person
from accounts.admin.factors import MakeSetUpCode, ResetFactor
from accounts.admin.joining import InviteAgain, JoinedFilter, joined
from accounts.admin.leaving import ChangeEmail, Erase, Move
from accounts.admin.operators import ChangeRoles, DismissOperator, MakeOperator, role_names
from accounts.admin.passwords import SendReset, SetOneTimePassword
from accounts.admin.people import AddPerson, Disable, Enable, RevokeAll
from accounts.admin.person_action import PersonAction
from accounts.models import Session, User
from accounts.people.access import delete_user
from accounts.people.operators import may_touch
from accounts.sessions.known_places import mark_new_networks
from config.console.actions import Result
from config.console.base import ConsoleAdmin
from config.console.columns import moment, yes_no
from licensing.models import Licence
from usage.admin.calls import RestartModelCalls, StopModelCalls
from usage.limits import PlanCaps
from usage.models import Alert, MonthlyUsage, Override, RunningCall, Stop
from usage.periods import Period
from usage.summaries import Summary, summary

SESSIONS_SHOWN = 20
CALLS_SHOWN = 20


class Delete(PersonAction):
    name = "remove"
    label = "Delete"
    permission = "delete"
    destructive = True
    locks_out = True

    def available(self, target: User, *, by: HttpRequest) -> bool:
        # A person with usage in the ledger can be erased instead; the rule refuses the deletion as well.
        used = MonthlyUsage.objects.filter(user=target).exists()
        return not used and super().available(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"{target} is removed with all sessions and tokens. This cannot be undone."

    def do(self, target: User, **given: Any) -> Result:
        delete_user(user_id=target.pk, **given)
        return Result(f"{target} has been deleted.")


@admin.register(User)
class PersonAdmin(ConsoleAdmin):
    row_actions = (
        RevokeAll(),
        StopModelCalls(),
        RestartModelCalls(),
        SendReset(),
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
    list_display = (
        "email",
        "client",
        "joined",
        yes_no("is_staff", "operator"),
        moment("last_login", "last sign-in"),
        moment("created_at"),
    )
    list_filter = (JoinedFilter, "is_staff")
    link_lookups = ("client__id__exact",)
    list_select_related = ("client",)
    search_fields = ("email", "client__name")
    uuid_fields = ("id", "client_id")
    fields = (
        "id",
        "email",
        "client",
        yes_no("is_active", "enabled"),
        "operator_roles",
        "joined",
        moment("last_login", "last sign-in"),
        moment("created_at"),
        moment("invited_at"),
        moment("erased_at"),
    )
    readonly_fields = ("joined", "operator_roles")

    @admin.display(description="joined")
    def joined(self, user: User) -> str:
        return joined(user, now=timezone.now())

    @admin.display(description="operator's roles")
    def operator_roles(self, user: User) -> str:
        return role_names(user)

    def row_name(self, row: User) -> str:
        return f"Erased person {str(row.pk)[:8]}" if row.erased_at else str(row)

    def buttons(self, request: HttpRequest, row: User) -> list[dict[str, Any]]:
        return [] if row.erased_at else super().buttons(request, row)

    def audit_url(self, row: User) -> str:
        return events_of_person(row.pk)

    def page_context(self, request: HttpRequest, row: User) -> dict[str, Any]:
        now = timezone.now()
        live = Session.objects.filter(user=row).live(at=now).select_related("user")
        shown = list(live[:SESSIONS_SHOWN])
        mark_new_networks(shown, of=row.pk)
        overrides = Override.objects.filter(user=row, starts_at__lte=now, ends_at__gt=now)
        return {
            "live": shown,
            "live_number": live.count() if len(shown) == SESSIONS_SHOWN else len(shown),
            "month": _month(row, now=now),
            "overrides": overrides.select_related("user"),
            "alerts": Alert.objects.filter(user=row, period__gte=Period.of(now).month),
            "touchable": row.erased_at is None and may_touch(request, row),
            "stop": Stop.objects.in_force(at=now).filter(user=row).first(),
            "calls": RunningCall.objects.filter(user=row).select_related("user")[:CALLS_SHOWN],
            "recent_events": events_about(ids_of_person(row.pk)),
        }


def _month(user: User, *, now: datetime) -> Summary | None:
    """This month's usage of a person who belongs to a client."""
    licence = Licence.objects.select_related("plan").filter(client__users=user).first()
    if licence is None:
        return None
    return summary(user_id=user.pk, plan=PlanCaps.of(licence.plan), now=now)


# Roles are groups, which actions on a person give and take; config.roles has their rights.
admin.site.unregister(Group)
