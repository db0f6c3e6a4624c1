"""The action that ends the sessions of everybody, as after a restore or a leak of keys."""

from collections.abc import Iterable
from typing import Any

from django.utils import timezone

from accounts.models import Session
from accounts.sessions.revocation import revoke_everything
from config.console.actions import Action, Result
from config.console.template_tags import counted


class RevokeEverybody(Action):
    """An owner's action without a row of its own; ``manage.py revoke_all_tokens`` does the same."""

    # As every action of a list without a row is called.
    name = "add"
    label = "Revoke all sessions"
    destructive = True
    # The rule commits in batches, so that no sign-in waits for all of them.
    atomic = False

    def title(self, target: None, name: str) -> str:
        return "Revoke all sessions?"

    def effects(self, target: None) -> Iterable[str]:
        live = Session.objects.live(at=timezone.now())
        people = counted(live.order_by().values("user").distinct().count(), "person", "people")
        yield f"{counted(live.count(), 'session')} of {people} end at once, and every access token is refused."
        yield "All personal keys are revoked permanently: people who use one must create another."
        yield "Running model calls end within 15 seconds."
        yield "Everybody can sign in again at once. Operators, including you, sign in to this console again."

    def do(self, target: None, **inputs: Any) -> Result:
        people, sessions = revoke_everything(**inputs)
        said = f"Everybody has been signed out: {counted(sessions, 'session')} ended."
        return Result(
            said,
            follows=f"Tokens and keys of {counted(people, 'person', 'people')} no longer work.",
        )
