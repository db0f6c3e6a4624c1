"""The mails about access, in the product's words. They are queued in the transaction of what they tell of."""

from typing import Any
from uuid import UUID

from accounts.models import User
from config.mail import queue_for_operators


def token_reused(*, user: User, session_id: UUID, evidence: dict[str, Any]) -> None:
    """To operators: a refresh token was presented twice, and what is known of both uses."""
    queue_for_operators(
        subject=f"A refresh token of {user.email} was used twice",
        text=(
            f"A refresh token of {user.email} was presented after it had been replaced. The session has been "
            "ended; the person has to sign in again on that device.\n\n"
            f"First use:  {evidence['used_at']} from {evidence['used_from'] or 'an unknown address'}\n"
            f"Second use: {evidence['replayed_at']} from {evidence['replayed_from'] or 'an unknown address'}\n\n"
            "Two addresses that the person does not know speak for theft; one and the same address seconds "
            "apart speaks for a lost answer."
        ),
        path=f"/admin/accounts/session/{session_id}/change/",
    )
