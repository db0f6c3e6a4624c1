"""Mails about sign-in and passwords.

A mail without a secret is queued in the transaction of its event; a mail with a link is sent by the job that makes it.
"""

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse

from accounts.models import PasswordLink, RefreshToken, Session, User
from config.platform.jobs.letters import Letter, letter
from config.platform.jobs.mail import deliver, queue_for_operators, queue_for_person

# In the address of the page that a new operator is given; to a process of the release before it means nothing.
SET_UP = "set_up"


def token_reused(*, session: Session, evidence: dict[str, Any]) -> None:
    """Informs operators of both uses of a replaced refresh token, without the name of the person."""
    if "ended_at" in evidence:
        ended = f"{evidence['ended_at']}, {evidence['ended_by']}"
        consequence = f"Its session had already ended ({ended}), so no access was possible."
    else:
        consequence = "Its session has been ended, and the person is informed by email."
    queue_for_operators(
        subject="A refresh token was used twice",
        text=(
            f"A refresh token of this session was presented after it had been replaced. {consequence}\n\n"
            f"Kind:       {evidence['kind']}\n"
            f"First use:  {evidence['used_at']} from {evidence['used_from'] or 'an unknown address'}\n"
            f"Second use: {evidence['replayed_at']} from {evidence['replayed_from'] or 'an unknown address'}"
            f" ({'the same device' if evidence['device_same'] else 'another device'}, as far as it says)\n\n"
            "Addresses that the person does not recognise suggest theft; one address, seconds apart, suggests a lost "
            "answer. Further uses of this session's tokens appear in the audit log, at most once an hour, and are "
            "not emailed."
        ),
        path=f"/admin/accounts/session/{session.pk}/change/",
    )


def signed_out(*, token: RefreshToken, replayed_from: str | None, now: datetime) -> None:
    """Informs the person why a device has to sign in again, after the reuse of its token."""
    session = token.session
    _queue(
        "signed_out",
        session.user,
        device=session.device,
        started_at=session.started_at,
        used_at=token.replaced_at,
        used_from=token.replaced_from,
        replayed_at=now,
        replayed_from=replayed_from,
    )


def signed_in_elsewhere(*, user: User, device: str, address: str | None, now: datetime) -> None:
    """Informs the person of a sign-in from a device and a network that no session of theirs knows."""
    _queue("elsewhere", user, device=device, address=address, at=now)


def devices_signed_out(*, user: User, devices: list[str], limit: int, now: datetime) -> None:
    """Informs the person of devices that were signed out to make room for another, by the limit of their licence."""
    _queue("devices", user, devices=devices, limit=limit, at=now)


def personal_key_made(
    *, user: User, address: str | None, ends: datetime, now: datetime, send_at: datetime
) -> None:
    """Informs the person of a new personal key, which the mail does not contain, nor its name: that may be anything.

    A mail that is sent later also tells of further keys until then.
    """
    until = send_at if send_at > now else None
    _queue("key", user, send_at=until, address=address, ends=ends, at=now)


def password_changed(*, user: User, now: datetime) -> None:
    """Informs the person that their password was changed."""
    _queue("changed", user, at=now)


def one_time_password_set(*, user: User, now: datetime) -> None:
    """Informs the person that an operator replaced their password by a one-time password, which it does not contain."""
    _queue("one_time", user, at=now)


def email_changed(*, user: User, was: str, now: datetime) -> None:
    """Informs the previous address of a change, without the new address: its owner may not have made the change."""
    _queue("email_changed", user, to=was, at=now)


def factor_changed(*, user: User, change: str, now: datetime) -> None:
    """Informs an operator of a change of their second factor."""
    _queue("factor", user, change=change, at=now)


def set_up_address() -> str:
    """Returns the page where a new operator chooses a password with their set-up code."""
    return f"{settings.BASE_URL}{reverse('account:one-time')}?{SET_UP}"


def operator_added(*, user: User, roles: list[str], by: str) -> None:
    """Informs a new operator. A colleague tells them the set-up code; the mail holds nothing that lets anybody in."""
    link = set_up_address()
    console = settings.BASE_URL + reverse("admin:login")
    given: dict[str, Any] = {"roles": ", ".join(roles), "by": by, "link": link, "console": console}
    given["is_asked"] = settings.OPERATOR_SECOND_FACTOR
    _queue("operator", user, **given)


def codes_refused(*, user: User, number: int, address: str | None, now: datetime) -> None:
    """Informs an operator that somebody gave their password and then one wrong code after the other."""
    _queue("codes", user, number=number, address=address, at=now)


def send_password_link(link: PasswordLink, *, secret: str) -> None:
    """Sends the person a link at once. It is built from ``BASE_URL`` and from no part of a request."""
    address = settings.BASE_URL + reverse("account:password", args=[secret])
    given = {"link": address, "until": link.expires_at.astimezone(UTC)}
    deliver(to=[link.user.email], **_written(link.kind, link.user, given)._asdict())


def _queue(template: str, user: User, *, send_at: datetime | None = None, **values: Any) -> None:
    """Queues a mail whose instants are in UTC, to be sent at once or at ``send_at``."""
    values["until"] = send_at
    for name, value in values.items():
        values[name] = value.astimezone(UTC) if isinstance(value, datetime) else value
    mail = _written(template, user, values)
    queue_for_person(to=values.get("to") or user.email, mail=mail, send_at=send_at)


def _written(template: str, user: User, values: dict[str, Any]) -> Letter:
    shown = {"email": values.get("to") or user.email, "client": user.client, **values}
    return letter(render_to_string(f"account/mail/{template}.txt", shown))
