"""The permission of a working licence, and the refusals."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from config.platform.problems.problem import Problem
from licensing.callers import Caller, caller_of


class LicenceSuspended(Problem):
    code = "licence_suspended"
    status = 403
    title = "Licence suspended"
    default_detail = "Your organisation's licence is suspended. Please talk to your administrator."


class NotEntitled(Problem):
    """The one refusal of anything outside a plan, whether or not it exists."""

    code = "not_entitled"
    status = 403
    title = "Not part of your plan"
    default_detail = "Your organisation's plan does not include this."


def check_licence(caller: Caller) -> None:
    """Raises ``LicenceSuspended``."""
    if caller.is_suspended:
        raise LicenceSuspended


class LicenceWorks(BasePermission):
    """Requires a licence that is not suspended."""

    def has_permission(self, request: Request, view: Any) -> bool:
        check_licence(caller_of(request))
        return True
