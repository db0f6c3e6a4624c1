"""Fields of the console's forms that name a person or a client."""

from collections import Counter
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from accounts.models import Client, User
from accounts.people.clients import NoSuchClient, find_client
from config.console.actions import SuggestingField
from config.console.base import uuid_in

# The number of suggested names; any other can be typed in full.
MOST_SUGGESTED = 1000
# Of an input for the name of somebody else, which no browser fills in or corrects.
NAME = {"autocomplete": "off", "spellcheck": "false", "class": "vTextField"}


class PersonField(forms.CharField):
    """A person who belongs to a client, by email in any case or by id."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=254, widget=forms.TextInput(attrs=NAME), **options)

    def prepare_value(self, value: Any) -> Any:
        """Shows the email of a person whose id a link has filled in."""
        identity = uuid_in(value)
        person = identity and User.objects.filter(pk=identity).first()
        return person.email if person else value

    def clean(self, value: Any) -> User | None:
        written = super().clean(value)
        if not written:
            return None
        identity = uuid_in(written)
        found = User.objects.filter(pk=identity) if identity else User.objects.by_email(written)
        person = found.first()
        if person is None or person.client_id is None or person.erased_at is not None:
            raise ValidationError("No client has a person with this email.", code="unknown")
        return person


class SuggestingInput(forms.TextInput):
    """A text input with suggestions, which browsers narrow during typing."""

    suggests = False

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        if not self.suggests:
            return super().render(name, value, attrs, renderer)
        identity = f"{(attrs or {}).get('id', name)}_offered"
        field = super().render(name, value, {**(attrs or {}), "list": identity}, renderer)
        options = format_html_join("", '<option value="{}">{}</option>', _suggestions())
        return format_html('{}<datalist id="{}">{}</datalist>', field, identity, options)


class ClientField(SuggestingField):
    """A client by its name in any case or by its id; None if empty."""

    listed_by = "accounts.view_client"

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=200, widget=SuggestingInput(attrs=NAME), **options)

    def prepare_value(self, value: Any) -> Any:
        client = Client.objects.filter(pk=value).first() if uuid_in(value) else None
        alike = Client.objects.filter(name__iexact=client.name) if client else Client.objects.none()
        return client.name if client and alike.count() == 1 else value

    def clean(self, value: Any) -> Any:
        written = super().clean(value)
        if not written:
            return None
        try:
            return find_client(written)
        except NoSuchClient as refusal:
            fault = refusal.errors[0]
            raise ValidationError(fault.detail, code=fault.code) from None


def _suggestions() -> list[tuple[str, str]]:
    """The values and their captions: names, and ids for a name that occurs twice."""
    clients = list(Client.objects.all()[:MOST_SUGGESTED])
    named = Counter(each.name.lower() for each in clients)
    return [
        (each.name, "") if named[each.name.lower()] == 1 else (str(each.pk), each.name)
        for each in clients
    ]
