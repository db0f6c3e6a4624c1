"""What all acts on a person have in common."""

from typing import cast

from django.http import HttpRequest

from accounts.models import User
from config.console.actions import Action

ENDS = (
    "Every session ends at once: tokens are refused from the next request on, "
    "and running streams end within 15 seconds."
)


class PersonAction(Action):
    """Nobody locks himself out, and the erased rest. Who may touch operators is asked for all acts alike."""

    locks_out = False

    def available(self, target: User, *, by: HttpRequest) -> bool:
        oneself = target.pk == cast("User", by.user).pk
        return target.erased_at is None and not (self.locks_out and oneself)
