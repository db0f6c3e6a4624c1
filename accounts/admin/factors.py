"""Actions on another operator's second factor: a set-up code, and the reset of a lost one."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from accounts.admin.operators import OperatorAction
from accounts.factors.devices import has_factor
from accounts.factors.setting_up import SET_UP_WITHIN, make_set_up_code, reset
from accounts.models import User
from config.console.actions import OneTimeResult, Result

MINUTES = int(SET_UP_WITHIN.total_seconds() // 60)


class MakeSetUpCode(OperatorAction):
    name = "set_up_code"
    label = "Create set-up code"
    question = "Create a set-up code for {name}?"

    def available(self, target: User, *, by: HttpRequest) -> bool:
        known = target.is_staff and target.is_active and super().available(target, by=by)
        return known and not has_factor(target.pk)

    def effects(self, target: User) -> Iterable[str]:
        yield f"A code is shown to you once. With it and their password {target} sets up a second factor."
        yield f"It works once, for {MINUTES} minutes; an earlier one stops working."

    def do(self, target: User, **inputs: Any) -> OneTimeResult:
        code = make_set_up_code(user_id=target.pk, **inputs)
        address = settings.BASE_URL + reverse("admin:login")
        shown = {"code": code, "address": address, "minutes": MINUTES}
        return OneTimeResult(template="admin/console/set_up_code.html", shown=shown)


class ResetFactor(OperatorAction):
    name = "reset_factor"
    label = "Reset second factor"
    question = "Reset the second factor of {name}?"
    destructive = True

    def available(self, target: User, *, by: HttpRequest) -> bool:
        return target.is_staff and super().available(target, by=by) and has_factor(target.pk)

    def effects(self, target: User) -> Iterable[str]:
        yield f"The passkeys, authenticator apps and recovery codes of {target} stop working permanently."
        yield "Their sessions in this console end."
        yield "They sign in with their password and a new set-up code, which you can create for them afterwards."
        yield "They get an email about it."

    def do(self, target: User, **inputs: Any) -> Result:
        reset(user_id=target.pk, **inputs)
        follows = "They sign in with their password and a set-up code that you create for them."
        return Result(f"The second factor of {target} has been reset.", target, follows)
