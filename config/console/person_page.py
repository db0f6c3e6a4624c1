"""A person's page: who they are, where they are signed in, what they use, and what may be done about it."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, cast

from django import forms
from django.contrib import admin
from django.contrib.auth.models import Group
from django.http import HttpRequest
from django.utils import timezone

from accounts.admin.audit import events_about, events_of_person, ids_of_person
from accounts.admin.fields import ClientField
from accounts.admin.joining import InviteAgain, JoinedFilter, joined
from accounts.admin.leaving import ChangeEmail, Erase, Move
from accounts.admin.on_person import ENDS, OnPerson
from accounts.admin.passwords import SendReset, SetOneTimePassword
from accounts.audit import Actor
from accounts.models import Session, User
from accounts.people.operators import may_touch
from accounts.people.users import (
    add_user,
    delete_user,
    disable,
    enable,
    set_operator,
)
from accounts.sessions.revocation import revoke_all
from config.console.actions import Act, ActOnSeveral, Done, do_each
from config.console.base import ConsoleAdmin
from config.console.columns import moment, yes_no
from licensing.models import Licence
from usage.admin.calls import RestartModelCalls, StopModelCalls
from usage.balance import PlanCaps
from usage.models import MonthlyUsage, Override, RunningCall, Stop
from usage.summaries import Summary, summary

SESSIONS_SHOWN = 20
CALLS_SHOWN = 20


class RevokeAll(OnPerson, ActOnSeveral):
    """The kill switch."""

    name = "revoke"
    label = "Revoke all sessions"
    grave = True

    def effects(self, target: User | None) -> Iterable[str]:
        yield ENDS
        yield "They can sign in again at once, with the same password. To keep them out, disable them."
        yield "An operator is signed out of this console as well."

    def do_all(
        self, targets: Sequence[User], given: dict[str, Any], *, by: Actor, now: datetime
    ) -> str:
        reason = given["reason"]
        ended = do_each(
            targets, lambda each: revoke_all(user_id=each.pk, by=by, reason=reason, now=now)
        )
        whose = f"of {targets[0]}" if len(targets) == 1 else f"of {len(targets)} people"
        return f"All tokens {whose} are revoked; sessions ended: {ended}."


class Disable(OnPerson, ActOnSeveral):
    name = "disable"
    label = "Disable"
    grave = True
    locks_out = True

    def offered(self, target: User, *, by: HttpRequest) -> bool:
        return target.is_active and super().offered(target, by=by)

    def effects(self, target: User | None) -> Iterable[str]:
        yield ENDS
        yield "They cannot sign in until somebody enables them again."
        yield "Third parties they have connected are disconnected for good."

    def do_all(
        self, targets: Sequence[User], given: dict[str, Any], *, by: Actor, now: datetime
    ) -> str:
        reason = given["reason"]
        ended = do_each(
            targets, lambda each: disable(user_id=each.pk, by=by, reason=reason, now=now)
        )
        return f"People disabled: {len(targets)}; sessions ended: {ended}."


class Enable(OnPerson):
    name = "enable"
    label = "Enable"

    def offered(self, target: User, *, by: HttpRequest) -> bool:
        return not target.is_active and super().offered(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield "They can sign in again with the password they had."

    def do(self, target: User, given: dict[str, Any], *, by: Actor, now: datetime) -> Done:
        enable(user_id=target.pk, reason=given["reason"], by=by, now=now)
        return Done(f"{target} is enabled.", target)


class PersonForm(forms.Form):
    email = forms.EmailField(max_length=254)
    client = ClientField(required=False, help_text="By name. Operators need none.")


class AddPerson(Act):
    name = "add"
    label = "Add user"
    permission = "add"
    form_class = PersonForm

    def effects(self, target: None) -> Iterable[str]:
        yield "They have no password at first, and cannot sign in until one is set on their page."

    def initial(self, target: None, *, by: HttpRequest) -> dict[str, Any]:
        return {"client": by.GET.get("client")}

    def do(self, target: None, given: dict[str, Any], *, by: Actor, now: datetime) -> Done:
        user = add_user(email=given["email"], client=given["client"], by=by, now=now)
        return Done(f"{user} has been added and has no password yet.", user)


class MakeOperator(OnPerson):
    name = "operator"
    label = "Make operator"

    def offered(self, target: User, *, by: HttpRequest) -> bool:
        may = cast("User", by.user).is_superuser and not target.is_staff
        return may and super().offered(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"{target} can use this console and do everything in it."

    def do(self, target: User, given: dict[str, Any], *, by: Actor, now: datetime) -> Done:
        set_operator(user_id=target.pk, operator=True, reason=given["reason"], by=by, now=now)
        return Done(f"{target} is an operator.", target)


class DismissOperator(OnPerson):
    name = "dismiss"
    label = "Take operator's rights"
    locks_out = True

    def offered(self, target: User, *, by: HttpRequest) -> bool:
        return target.is_staff and super().offered(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"{target} can use this console no longer, from the next request on."

    def do(self, target: User, given: dict[str, Any], *, by: Actor, now: datetime) -> Done:
        set_operator(user_id=target.pk, operator=False, reason=given["reason"], by=by, now=now)
        return Done(f"{target} is no operator any more.", target)


class Delete(OnPerson):
    name = "remove"
    label = "Delete"
    permission = "delete"
    grave = True
    locks_out = True

    def offered(self, target: User, *, by: HttpRequest) -> bool:
        # Whom the ledger refers to can be erased instead, which the rule says as well.
        used = MonthlyUsage.objects.filter(user=target).exists()
        return not used and super().offered(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"{target} is removed with all sessions and tokens. This cannot be undone."

    def do(self, target: User, given: dict[str, Any], *, by: Actor, now: datetime) -> Done:
        delete_user(user_id=target.pk, reason=given["reason"], by=by, now=now)
        return Done(f"{target} has been deleted.")


@admin.register(User)
class PersonAdmin(ConsoleAdmin):
    acts = (
        RevokeAll(),
        StopModelCalls(),
        RestartModelCalls(),
        SendReset(),
        SetOneTimePassword(),
        InviteAgain(),
        ChangeEmail(),
        Move(),
        MakeOperator(),
        DismissOperator(),
        Enable(),
        Disable(),
        Delete(),
        Erase(),
    )
    adding = AddPerson()
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
    linked_by = ("client__id__exact",)
    list_select_related = ("client",)
    search_fields = ("email", "client__name")
    uuid_fields = ("id", "client_id")
    fields = (
        "id",
        "email",
        "client",
        yes_no("is_active", "enabled"),
        yes_no("is_staff", "operator"),
        "joined",
        moment("last_login", "last sign-in"),
        moment("created_at"),
        moment("invited_at"),
        moment("erased_at"),
    )
    readonly_fields = ("joined",)

    @admin.display(description="joined")
    def joined(self, user: User) -> str:
        return joined(user, now=timezone.now())

    def called(self, row: User) -> str:
        return f"Erased person {str(row.pk)[:8]}" if row.erased_at else str(row)

    def buttons(self, request: HttpRequest, row: User) -> list[dict[str, Any]]:
        return [] if row.erased_at else super().buttons(request, row)

    def events(self, row: User) -> str:
        return events_of_person(row.pk)

    def beside(self, request: HttpRequest, row: User) -> dict[str, Any]:
        now = timezone.now()
        live = Session.objects.filter(user=row).live(at=now).select_related("user")
        overrides = Override.objects.filter(user=row, starts_at__lte=now, ends_at__gt=now)
        return {
            "live": live[:SESSIONS_SHOWN],
            "live_number": live.count(),
            "month": _month(row, now=now),
            "overrides": overrides.select_related("user"),
            "touchable": row.erased_at is None and may_touch(request, row),
            "stop": Stop.objects.in_force(at=now).filter(user=row).first(),
            "calls": RunningCall.objects.filter(user=row).select_related("user")[:CALLS_SHOWN],
            "recent_events": events_about(ids_of_person(row.pk)),
        }


def _month(user: User, *, now: datetime) -> Summary | None:
    """What they have used this month, for people of a client."""
    licence = Licence.objects.select_related("plan").filter(client__users=user).first()
    if licence is None:
        return None
    caps = PlanCaps(
        monthly_input=licence.plan.monthly_input_tokens,
        monthly_output=licence.plan.monthly_output_tokens,
        daily=licence.plan.daily_tokens,
    )
    return summary(user_id=user.pk, plan=caps, now=now)


# Nobody's rights come from a group here: an operator may do everything.
admin.site.unregister(Group)
