"""The mails about access, in the product's words.

What holds no secret is queued in the transaction of what it tells of; a link is sent by the job that makes it.
"""

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse

from accounts.models import PasswordLink, RefreshToken, Session, User
from config.jobs.mail import deliver, queue_for_operators, queue_for_person


def token_reused(*, session: Session, evidence: dict[str, Any]) -> None:
    """To operators: a refresh token was presented after it had been replaced, and what is known of both uses."""
    if "ended_at" in evidence:
        ended = f"{evidence['ended_at']}, {evidence['ended_by']}"
        consequence = f"Its session had ended before ({ended}), so nothing was open."
    else:
        consequence = "Its session has been ended, and the person told why."
    queue_for_operators(
        subject=f"A refresh token of {session.user.email} was used twice",
        text=(
            f"A refresh token of {session.user.email} was presented after it had been replaced. {consequence}\n\n"
            f"Kind:       {evidence['kind']}\n"
            f"First use:  {evidence['used_at']} from {evidence['used_from'] or 'an unknown address'}\n"
            f"Second use: {evidence['replayed_at']} from {evidence['replayed_from'] or 'an unknown address'}"
            f" ({'the same device' if evidence['device_same'] else 'another device'}, as far as it says)\n\n"
            "Two addresses that the person does not know speak for theft; one and the same address seconds "
            "apart speaks for a lost answer. Further uses of tokens of this session are in the audit log, "
            "at most one an hour, and are not mailed."
        ),
        path=f"/admin/accounts/session/{session.pk}/change/",
    )


def signed_out(*, token: RefreshToken, replayed_from: str | None, now: datetime) -> None:
    """To the person: why one device has to sign in again, and what to do if it was not they. Of a used token."""
    session = token.session
    given = {
        "email": session.user.email,
        "device": session.device_fp,
        "started_at": session.started_at.astimezone(UTC),
        "used_at": token.replaced_at and token.replaced_at.astimezone(UTC),
        "used_from": token.replaced_from,
        "replayed_at": now.astimezone(UTC),
        "replayed_from": replayed_from,
    }
    queue_for_person(
        to=session.user.email,
        subject="One of your devices was signed out",
        text=render_to_string("account/mail/signed_out.txt", given),
        html=render_to_string("account/mail/signed_out.html", given),
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


def one_time_password_set(*, user: User, now: datetime) -> None:
    """To the person, without the password: an operator has replaced theirs by a one-time one."""
    given = {"email": user.email, "at": now.astimezone(UTC)}
    queue_for_person(
        to=user.email,
        subject="You were given a one-time password",
        text=render_to_string("account/mail/one_time.txt", given),
        html=render_to_string("account/mail/one_time.html", given),
    )


def email_changed(*, was: str, now: datetime) -> None:
    """To the address before, without the one after: the first sign of it that whoever owns the account gets."""
    given = {"email": was, "at": now.astimezone(UTC)}
    queue_for_person(
        to=was,
        subject="The email of your account was changed",
        text=render_to_string("account/mail/email_changed.txt", given),
        html=render_to_string("account/mail/email_changed.html", given),
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
