"""The mails about access, in the product's words.

What holds no secret is queued in the transaction of what it tells of; a link is sent by the job that makes it.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse

from accounts.models import PasswordLink, User
from config.mail import deliver, queue_for_operators, queue_for_person


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


def password_changed(*, user: User, now: datetime) -> None:
    """To the person: their password is another one now."""
    given = {"email": user.email, "at": now.astimezone(UTC)}
    queue_for_person(
        to=user.email,
        subject="Your password was changed",
        text=render_to_string("account/mail/changed.txt", given),
        html=render_to_string("account/mail/changed.html", given),
    )


def send_password_link(*, to: str, kind: PasswordLink.Kind, secret: str) -> None:
    """To the person, at once: the link, built from ``BASE_URL`` and from nothing that a request says."""
    address = settings.BASE_URL + reverse("account:password", args=[secret])
    given = {"email": to, "link": address}
    subject = {
        PasswordLink.Kind.RESET: "Set a new password",
        PasswordLink.Kind.INVITATION: "You have been invited",
    }[kind]
    deliver(
        to=[to],
        subject=subject,
        text=render_to_string(f"account/mail/{kind.value}.txt", given),
        html=render_to_string(f"account/mail/{kind.value}.html", given),
    )
