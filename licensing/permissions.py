"""What a licence permits. These ask; the rows decide."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from accounts.sessions.authentication import Claimed
from config.api.error_mapping import DATABASE_AWAY
from config.api.problems import Problem
from licensing.callers import Caller, caller_of


class LicenceSuspended(Problem):
    code = "licence_suspended"
    status = 403
    title = "Licence suspended"
    default_detail = "Your organisation's licence is suspended. Please talk to your administrator."


class NotEntitled(Problem):
    """The one refusal of what a plan does not give, known here or not."""

    code = "not_entitled"
    status = 403
    title = "Not part of your plan"
    default_detail = "Your organisation's plan does not include this."


class LicenceWorks(BasePermission):
    """The caller's client may work: its licence is not suspended."""

    def has_permission(self, request: Request, view: Any) -> bool:
        refuse_suspended(caller_of(request))
        return True


def refuse_suspended(caller: Caller) -> None:
    if caller.is_suspended:
        raise LicenceSuspended


@contextmanager
def told_first(claimed: Claimed) -> Iterator[None]:
    """Who may not work is told that, and nothing of what is wrong with what they ask."""
    try:
        yield
    except DATABASE_AWAY:
        # There is nobody to ask.
        raise
    except Exception:
        working(claimed)
        raise


def working(claimed: Claimed) -> Caller:
    """The caller by the rows, for whom ``WHO_WORKS`` gives one. Raises ``AccessRevoked`` or ``LicenceSuspended``."""
    caller: Caller = claimed.caller()
    refuse_suspended(caller)
    return caller
