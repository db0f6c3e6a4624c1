"""The base of all actions on a person."""

from typing import cast

from django.http import HttpRequest

from accounts.models import User
from config.console.actions import Action
from config.console.template_tags import counted

ENDS = (
    "Every session ends at once: tokens are refused from the next request on, "
    "and running streams end within 15 seconds. So does every personal key."
)


def signed_out(sessions: int) -> str:
    """Returns the end of a person's or several people's sessions in a sentence."""
    if not sessions:
        return "No session was open."
    return f"Signed out everywhere ({counted(sessions, 'device')})."


class PersonAction(Action):
    """An action on a person who is not erased; operators cannot lock themselves out with it."""

    locks_out = False

    def available(self, target: User, *, by: HttpRequest) -> bool:
        oneself = target.pk == cast("User", by.user).pk
        return target.erased_at is None and not (self.locks_out and oneself)
