"""Fields of the console's forms that name a person or a client."""

from collections import Counter
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from accounts.models import Client, User
from accounts.people.clients import NoSuchClient, find_client
from config.console.base import uuid_in

# Names that are offered while one types; any other can be written out.
MOST_OFFERED = 1000


class PersonField(forms.CharField):
    """Somebody who belongs to a client, by email, in whatever case, or by id; gives the row. It needs no script."""

    def __init__(self, **options: Any) -> None:
        attrs = {"autocomplete": "off", "spellcheck": "false", "class": "vTextField"}
        super().__init__(max_length=254, widget=forms.TextInput(attrs=attrs), **options)

    def prepare_value(self, value: Any) -> Any:
        """What is filled in by id, as a link of a mail or a page does, shows the email."""
        identity = uuid_in(value)
        person = identity and User.objects.filter(pk=identity).first()
        return person.email if person else value

    def clean(self, value: Any) -> User | None:
        written = super().clean(value)
        if not written:
            return None
        identity = uuid_in(written)
        who = {"pk": identity} if identity else {"email": written.lower()}
        person = User.objects.filter(client__isnull=False, erased_at=None, **who).first()
        if person is None:
            raise ValidationError("No client has a person of this email.", code="unknown")
        return person


class Offering(forms.TextInput):
    """A text input with a list of proposals, which browsers narrow as one types, without any script."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        identity = f"{(attrs or {}).get('id', name)}_offered"
        field = super().render(name, value, {**(attrs or {}), "list": identity}, renderer)
        options = format_html_join("", '<option value="{}">{}</option>', _offered())
        return format_html('{}<datalist id="{}">{}</datalist>', field, identity, options)


class ClientField(forms.CharField):
    """A client by its name, in whatever case, or by its id; gives the row, or None where nothing was written."""

    def __init__(self, **options: Any) -> None:
        attrs = {"autocomplete": "off", "spellcheck": "false", "class": "vTextField"}
        super().__init__(max_length=200, widget=Offering(attrs=attrs), **options)

    def prepare_value(self, value: Any) -> Any:
        client = Client.objects.filter(pk=value).first() if uuid_in(value) else None
        if client is None:
            return value
        return (
            client.name if Client.objects.filter(name__iexact=client.name).count() == 1 else value
        )

    def clean(self, value: Any) -> Any:
        written = super().clean(value)
        if not written:
            return None
        try:
            return find_client(written)
        except NoSuchClient as refusal:
            fault = refusal.errors[0]
            raise ValidationError(fault.detail, code=fault.code) from None


def _offered() -> list[tuple[str, str]]:
    """What is written and what is shown beside it: names, and for a name that occurs twice the ids."""
    clients = list(Client.objects.all()[:MOST_OFFERED])
    named = Counter(each.name.lower() for each in clients)
    return [
        (each.name, "") if named[each.name.lower()] == 1 else (str(each.pk), each.name)
        for each in clients
    ]
