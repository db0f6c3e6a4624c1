"""Actions for a person who cannot sign in: a reset link by mail, or a one-time password if mail does not arrive."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from accounts.admin.person_action import ENDS, PersonAction, signed_out
from accounts.models import PasswordLink, User
from accounts.people.one_time_passwords import set_one_time_password
from accounts.people.password_links import LIFETIMES, request_link
from config.console.actions import OneTimeResult, ReasonForm, Result
from config.console.template_tags import instant

MINUTES = int(LIFETIMES[PasswordLink.Kind.RESET].total_seconds() // 60)
HOURS = int(LIFETIMES[PasswordLink.Kind.ONE_TIME].total_seconds() // 3600)


class SendReset(PersonAction):
    name = "reset"
    label = "Send reset email"
    question = "Send {name} a reset email?"
    form_class = forms.Form

    def available(self, target: User, *, by: HttpRequest) -> bool:
        known = target.is_active and target.has_usable_password()
        return known and super().available(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"{target} gets an email with a link to set a new password. It works once, for {MINUTES} minutes."
        yield "An earlier reset link stops working."
        yield "Until they use it, their password and their sessions stay as they are."

    def do(self, target: User, **inputs: Any) -> Result:
        request_link(user_id=target.pk, kind=PasswordLink.Kind.RESET, **inputs)
        follows = f"Its link works once, for {MINUTES} minutes."
        return Result(f"A reset email to {target} is on its way.", target, follows)


class SetOneTimePassword(PersonAction):
    """For times without mail. Operators cannot set their own, which would lock them out."""

    name = "one_time"
    label = "Set one-time password"
    question = "Set a one-time password for {name}?"
    form_class = ReasonForm
    destructive = True
    locks_out = True

    def available(self, target: User, *, by: HttpRequest) -> bool:
        return target.is_active and super().available(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield ENDS
        yield "Their password stops working. A one-time password takes its place and is shown to you once."
        yield f"Read it to them on a call. Within {HOURS} hours they choose a new password with it."
        yield "They get an email about it, without the password."

    def do(self, target: User, **inputs: Any) -> OneTimeResult:
        made = set_one_time_password(user_id=target.pk, **inputs)
        return OneTimeResult(
            template="admin/console/one_time.html",
            shown={
                "password": made.password,
                "address": settings.BASE_URL + reverse("account:one-time"),
                "until": instant(made.expires_at),
                "ended": signed_out(made.ended),
            },
        )
