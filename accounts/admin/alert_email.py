"""The action that names who is mailed about a client's used-up caps, on the client's page."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django import forms
from django.http import HttpRequest

from accounts.audit import Actor
from accounts.models import Client
from accounts.people.clients import set_alert_email
from config.console.actions import Action, Result


class AlertEmailForm(forms.Form):
    email = forms.EmailField(
        label="Email", required=False, help_text="Empty: only operators are emailed."
    )


class SetAlertEmail(Action):
    name = "alert_email"
    label = "Set alert email"
    question = "Change the alert email of {name}?"
    form_class = AlertEmailForm

    def effects(self, target: Client) -> Iterable[str]:
        yield "The address is emailed, as operators are, when one of the client's people has used up a monthly cap."
        yield "The email names the person and the tokens."

    def initial(self, target: Client, *, by: HttpRequest) -> dict[str, Any]:
        return {"email": target.alert_email}

    def do(self, target: Client, *, email: str, by: Actor, now: datetime) -> Result:
        client = set_alert_email(client_id=target.pk, email=email, by=by, now=now)
        told = f"{client.alert_email} and operators are" if client.alert_email else "Operators are"
        return Result(f"{told} emailed when someone at {client} has used up a monthly cap.", client)
