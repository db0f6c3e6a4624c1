"""A person's page: who they are, where they are signed in, what they use, and what may be done about it."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, cast

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AutocompleteSelect
from django.contrib.auth.models import Group
from django.contrib.auth.password_validation import password_validators_help_text_html
from django.http import HttpRequest
from django.utils import timezone

from accounts.acts import Act, ActOnSeveral, Done
from accounts.audit import Actor
from accounts.columns import moment, yes_no
from accounts.console import ConsoleAdmin, events_about
from accounts.models import Client, Session, User
from accounts.people import (
    add_user,
    change_user,
    delete_user,
    disable,
    enable,
    set_operator,
    set_password,
)
from accounts.revocation import revoke_all
from config.console.signing_in import password_field
from licensing.models import Licence
from usage.caps import PlanCaps
from usage.models import Override
from usage.summaries import Summary, summary

SESSIONS_SHOWN = 20
ENDS = (
    "Every session ends at once: tokens are refused from the next request on, "
    "and running streams end within 15 seconds."
)


class OnPerson(Act):
    """Operators are touched only by those who may make operators, and nobody locks himself out."""

    locks_out = False

    def offered(self, target: User, *, by: HttpRequest) -> bool:
        operator = cast("User", by.user)
        if self.locks_out and target.pk == operator.pk:
            return False
        return operator.is_superuser or not (target.is_staff or target.is_superuser)


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
        ended = sum(
            revoke_all(user_id=each.pk, by=by, reason=given["reason"], now=now) for each in targets
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

    def do_all(
        self, targets: Sequence[User], given: dict[str, Any], *, by: Actor, now: datetime
    ) -> str:
        reason = given["reason"]
        ended = sum(disable(user_id=each.pk, by=by, reason=reason, now=now) for each in targets)
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
    client = forms.ModelChoiceField(
        Client.objects.all(), required=False, help_text="Operators need none."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = User._meta.get_field("client")  # noqa: SLF001 - Django's documented API
        client = cast("Any", self.fields["client"])
        client.widget = AutocompleteSelect(field, admin.site, choices=client.choices)


class Change(OnPerson):
    name = "identity"
    label = "Change email or client"
    form_class = PersonForm

    def effects(self, target: User) -> Iterable[str]:
        yield "They sign in with the new email from now on; sessions go on."
        yield "With another client, its licence and plan count from the next request on; what was used stays theirs."

    def initial(self, target: User, *, by: HttpRequest) -> dict[str, Any]:
        return {"email": target.email, "client": target.client_id}

    def do(self, target: User, given: dict[str, Any], *, by: Actor, now: datetime) -> Done:
        email, client = given["email"], given["client"]
        user = change_user(user_id=target.pk, email=email, client=client, by=by, now=now)
        return Done(f"{user} has been changed.", user)


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


class PasswordForm(forms.Form):
    password = password_field("New password", "new-password", password_validators_help_text_html)
    again = password_field("The same again", "new-password")

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if given.get("password") != given.get("again") and "again" in given:
            self.add_error("again", "The two passwords are not the same.")
        return given


class SetPassword(OnPerson):
    name = "password"
    label = "Set password"
    form_class = PasswordForm

    def effects(self, target: User) -> Iterable[str]:
        yield ENDS
        yield "They sign in with the new password, which you have to bring to them."

    def do(self, target: User, given: dict[str, Any], *, by: Actor, now: datetime) -> Done:
        password = given["password"]
        ended = set_password(user_id=target.pk, password=password, by=by, now=now)
        return Done(f"{target} has a new password; sessions ended: {ended}.", target)


class MakeOperator(OnPerson):
    name = "operator"
    label = "Make operator"

    def offered(self, target: User, *, by: HttpRequest) -> bool:
        return cast("User", by.user).is_superuser and not target.is_staff

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

    def effects(self, target: User) -> Iterable[str]:
        yield f"{target} is removed with all sessions and tokens. This cannot be undone."
        yield "A person who has used models cannot be deleted, because the ledger stays; disable them instead."

    def do(self, target: User, given: dict[str, Any], *, by: Actor, now: datetime) -> Done:
        delete_user(user_id=target.pk, reason=given["reason"], by=by, now=now)
        return Done(f"{target} has been deleted.")


@admin.register(User)
class PersonAdmin(ConsoleAdmin):
    acts = (
        RevokeAll(),
        SetPassword(),
        Change(),
        MakeOperator(),
        DismissOperator(),
        Enable(),
        Disable(),
        Delete(),
    )
    adding = AddPerson()
    change_form_template = "admin/console/person.html"
    list_display = (
        "email",
        "client",
        yes_no("is_active", "enabled"),
        yes_no("is_staff", "operator"),
        moment("last_login", "last sign-in"),
        moment("created_at"),
    )
    list_filter = ("is_active", "is_staff")
    list_select_related = ("client",)
    search_fields = ("email", "client__name")
    uuid_fields = ("id", "client_id")
    fields = (
        "id",
        "email",
        "client",
        yes_no("is_active", "enabled"),
        yes_no("is_staff", "operator"),
        "has_password",
        moment("last_login", "last sign-in"),
        moment("created_at"),
    )
    readonly_fields = ("has_password",)

    @admin.display(description="password set")
    def has_password(self, user: User) -> str:
        return "yes" if user.has_usable_password() else "no"

    def beside(self, request: HttpRequest, row: User) -> dict[str, Any]:
        now = timezone.now()
        live = Session.objects.filter(user=row).live(at=now)
        shown = list(live[:SESSIONS_SHOWN])
        return {
            "live": shown,
            "live_number": live.count(),
            "month": _month(row, now=now),
            "overrides": Override.objects.filter(user=row, starts_at__lte=now, ends_at__gt=now),
            "recent_events": events_about([row.pk, *(each.pk for each in shown)]),
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
