"""Keeps forms that a repeated proof of the second factor interrupts, in the operator's session.

The input is restored into its form, which the operator submits again with one click. Nothing is submitted
automatically: every submission comes from a page that the operator has just seen, with its guards against forged and
double submissions. Secrets and files are not kept, nor values that a page computed, such as a preview.
"""

from collections.abc import Mapping, Sequence
from time import time
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, QueryDict

from config.console.submissions.double_submit import FIELD

KEPT, KEPT_SECONDS = "kept_form", 600
BACK = "Confirmed. Nothing has been done yet: check what you typed, then continue."


def keep(
    request: HttpRequest, form: forms.BaseForm, *, page: str, also: Mapping[str, Sequence[str]]
) -> None:
    """Keeps the input of a form for the page that shows it again."""
    secret = [name for name, field in form.fields.items() if _is_secret(field)]
    hidden = [field.html_name for field in form.hidden_fields()]
    excluded = {"csrfmiddlewaretoken", FIELD, *secret, *hidden}
    data = {name: values for name, values in request.POST.lists() if name not in excluded}
    until = time() + KEPT_SECONDS
    request.session[KEPT] = {"page": page, "until": until, "given": {**data, **also}}


def taken(request: HttpRequest) -> QueryDict | None:
    """Removes and returns the form kept for this page, within ten minutes; None for any other page."""
    kept = request.session.get(KEPT)
    if request.method != "GET" or not kept or kept["page"] != request.path:
        return None
    del request.session[KEPT]
    if kept["until"] < time():
        return None
    data = QueryDict(mutable=True)
    for name, values in kept["given"].items():
        data.setlist(name, values)
    messages.info(request, BACK)
    return data


def clear_faults(form: forms.BaseForm, kept: Mapping[str, Any] | None) -> None:
    """Replaces the errors of a kept form's missing secrets and files by a request to enter them again."""
    again = {name: field for name, field in form.fields.items() if kept and _is_secret(field)}
    for field in again.values():
        field.help_text = "This was not kept: enter it again."
    for name in again:
        form.errors.pop(name, None)


def _is_secret(field: forms.Field) -> bool:
    return isinstance(field, forms.FileField) or isinstance(field.widget, forms.PasswordInput)
