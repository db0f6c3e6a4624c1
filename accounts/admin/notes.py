"""The action that notes a client's contract, account manager and more, on the client's page."""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any

from django import forms
from django.http import HttpRequest

from accounts.models import Client
from accounts.people.clients import ClientNotes, set_notes
from config.console.actions import Action, Result, TrackedForm


class NotesForm(TrackedForm, forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Client
        fields = tuple(ClientNotes.__annotations__)
        widgets = {"notes": forms.Textarea(attrs={"rows": 10})}


class EditNotes(Action):
    """Changes the notes of a client."""

    name = "notes"
    label = "Edit notes"
    question = "Edit the notes of {name}?"
    button = "Save notes"

    def effects(self, target: Client) -> Iterable[str]:
        yield "Everybody who can open this client can read them, and search finds them."
        yield "The audit log records which of them changed, but not what they say."

    def form(self, target: Client, data: Mapping[str, Any] | None, *, by: HttpRequest) -> NotesForm:
        # A copy: the form writes what was entered into its instance.
        return NotesForm(data, instance=copy(target))

    def do(self, target: Client, **inputs: Any) -> Result:
        client = set_notes(client_id=target.pk, **inputs)
        return Result(f"The notes of {client} have been saved.", client)
