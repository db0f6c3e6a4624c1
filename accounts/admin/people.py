"""Actions that add, disable and enable people, and end their sessions."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.http import HttpRequest

from accounts.admin.fields import ClientField
from accounts.admin.person_action import ENDS, PersonAction, signed_out
from accounts.models import User
from accounts.people.access import disable, enable
from accounts.people.users import add_user
from accounts.seats import seats_of
from accounts.sessions.revocation import revoke_all
from config.console.actions import Action, BulkAction, Result


class RevokeAll(PersonAction, BulkAction):
    """The kill switch: ends every session at once."""

    name = "revoke"
    label = "End all sessions"
    question = "End all sessions of {name}?"
    destructive = True

    def effects(self, target: User | None) -> Iterable[str]:
        yield ENDS
        yield "They can sign in again at once, with the same password. To keep them out, disable them."
        yield "An operator is also signed out of this console."

    def message(self, subject: str, number: int) -> str:
        return signed_out(number)

    def do_one(self, target: User, **inputs: Any) -> int:
        return revoke_all(user_id=target.pk, **inputs)


class Disable(PersonAction, BulkAction):
    name = "disable"
    label = "Disable"
    question = "Disable {name}?"
    destructive = True
    locks_out = True
    undone_by = "enable"

    def available(self, target: User, *, by: HttpRequest) -> bool:
        return target.is_active and super().available(target, by=by)

    def effects(self, target: User | None) -> Iterable[str]:
        yield ENDS
        yield "They cannot sign in until somebody enables them again."
        yield "Their connections to third parties are removed permanently."

    def message(self, subject: str, number: int) -> str:
        return f"{subject} can no longer sign in. {signed_out(number)}"

    def do_one(self, target: User, **inputs: Any) -> int:
        return disable(user_id=target.pk, **inputs)


class Enable(PersonAction):
    name = "enable"
    label = "Enable"
    question = "Enable {name}?"

    def available(self, target: User, *, by: HttpRequest) -> bool:
        return not target.is_active and super().available(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield "They can sign in again with the password they had."
        if target.client and (seats := seats_of(target.client)):
            yield seats.without(1) or f"They take a seat: {seats} are taken."

    def do(self, target: User, **inputs: Any) -> Result:
        enable(user_id=target.pk, **inputs)
        follows = "They can sign in with the password they had."
        return Result(f"{target} is enabled.", target, follows)


class PersonForm(forms.Form):
    email = forms.EmailField(max_length=254)
    client = ClientField(required=False, help_text="By name. Operators do not need one.")


class AddPerson(Action):
    name = "add"
    label = "Add person"
    form_class = PersonForm

    def effects(self, target: None) -> Iterable[str]:
        yield "They have no password and cannot sign in until one is set on their page."
        yield "They take a seat of the client. Without a free one, nobody is added."

    def initial(self, target: None, *, by: HttpRequest) -> dict[str, Any]:
        return {"client": by.GET.get("client")}

    def do(self, target: None, **inputs: Any) -> Result:
        user = add_user(**inputs)
        follows = "They have no password yet: send an invitation, or set a one-time password."
        return Result(f"{user} has been added.", user, follows)
