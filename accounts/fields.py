"""Fields of the console's forms that every app may have."""

from typing import Any
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError

from accounts.models import User


class PersonField(forms.CharField):
    """Somebody who belongs to a client, by email, in whatever case, or by id; gives the row. It needs no script."""

    def __init__(self, **options: Any) -> None:
        attrs = {"autocomplete": "off", "spellcheck": "false", "class": "vTextField"}
        super().__init__(max_length=254, widget=forms.TextInput(attrs=attrs), **options)

    def prepare_value(self, value: Any) -> Any:
        """What is filled in by id, as a link of a mail or a page does, shows the email."""
        identity = _uuid(value)
        person = identity and User.objects.filter(pk=identity).first()
        return person.email if person else value

    def clean(self, value: Any) -> User | None:
        written = super().clean(value)
        if not written:
            return None
        identity = _uuid(written)
        who = {"pk": identity} if identity else {"email": written.lower()}
        person = User.objects.filter(client__isnull=False, erased_at=None, **who).first()
        if person is None:
            raise ValidationError("No client has a person of this email.", code="unknown")
        return person


def _uuid(value: Any) -> UUID | None:
    try:
        return UUID(str(value))
    except ValueError:
        return None
