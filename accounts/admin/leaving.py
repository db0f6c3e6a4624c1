"""Actions that change a person's email or client, or erase them for good."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.http import HttpRequest

from accounts.admin.fields import NAME, ClientField
from accounts.admin.person_action import ENDS, PersonAction, signed_out
from accounts.audit import Actor
from accounts.models import Client, User
from accounts.people.erasure import erase_user, preview
from accounts.people.users import change_email, move_user
from config.console.actions import ReasonForm, Result


class EmailForm(ReasonForm):
    email = forms.EmailField(max_length=254)


class ChangeEmail(PersonAction):
    name = "email"
    label = "Change email"
    question = "Change the email of {name}?"
    form_class = EmailForm

    def effects(self, target: User) -> Iterable[str]:
        yield "They sign in with the new email from now on; sessions continue."
        yield "Links emailed to the old address stop working, including any invitation."
        yield "The old address gets an email with the time of the change, but not the new address."

    def initial(self, target: User, *, by: HttpRequest) -> dict[str, Any]:
        return {"email": target.email}

    def do(self, target: User, **inputs: Any) -> Result:
        user = change_email(user_id=target.pk, **inputs)
        return Result(f"{user} has been changed.", user)


class MoveForm(ReasonForm):
    client = ClientField(
        help_text="By name or id. To keep somebody out of the shell, disable them instead."
    )


class Move(PersonAction):
    name = "move"
    label = "Move to another client"
    question = "Move {name} to another client?"
    form_class = MoveForm

    def available(self, target: User, *, by: HttpRequest) -> bool:
        # Operators belong to no client; those of earlier releases leave theirs here.
        outside = target.is_staff and target.client_id is None
        return not outside and super().available(target, by=by)

    def form(self, target: User, data: Mapping[str, Any] | None, *, by: HttpRequest) -> MoveForm:
        form: MoveForm = super().form(target, data, by=by)
        if target.is_staff:
            client = form.fields["client"]
            client.required, client.help_text = False, "Empty: no client, as for every operator."
        return form

    def effects(self, target: User) -> Iterable[str]:
        yield f"Now: {target.client or 'no client'}."
        yield ENDS
        yield "They sign in again with the same password, and the new client's licence and plan apply."
        if target.is_active:
            yield "They take a seat of the new client. Without a free one there, nothing is changed."
        yield "Their past usage stays with the old client in the ledger, and still counts towards this month's caps."
        if not target.has_usable_password():
            yield "Their invitation no longer works: send another one afterwards."

    def do(
        self, target: User, *, client: Client | None, reason: str, by: Actor, now: datetime
    ) -> Result:
        ended = move_user(user_id=target.pk, client=client, reason=reason, by=by, now=now)
        said = f"{target} now belongs to {client or 'no client'}."
        return Result(said, target, signed_out(ended))


class ErasureForm(ReasonForm):
    email = forms.CharField(
        label="Type the person’s email",
        max_length=254,
        widget=forms.TextInput(attrs=NAME),
        help_text="Confirms that this is the right person.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = "Kept in the audit log. Write no names or emails here."


class Erase(PersonAction):
    name = "erase"
    label = "Erase"
    question = "Erase {name}?"
    form_class = ErasureForm
    destructive = True
    locks_out = True

    def effects(self, target: User) -> Iterable[str]:
        yield f"This cannot be undone. {target} can never sign in again; a new person may have the email."
        going = (
            f"{name} {number:,}" for name, number in preview(user_id=target.pk).items() if number
        )
        yield f"Removed: email and password; {', '.join(going) or 'there is nothing else'}."
        yield "Their usage stays in the ledger, without a name."
        yield "The audit log keeps the email as evidence until its events are pruned."

    def do(self, target: User, **inputs: Any) -> Result:
        erase_user(user_id=target.pk, **inputs)
        return Result("The person has been erased.")
