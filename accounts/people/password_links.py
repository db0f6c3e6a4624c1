"""Setting a password by a mailed link: asked for, made and sent by the worker, used once.

Whoever asks learns nothing: the request queues the same job for every email, and only the worker looks the
person up. The job knows whom to write to and never the secret, which is made when it runs and stands in the
mail alone.
"""

import logging
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from threading import Lock
from time import monotonic
from uuid import UUID

from django.db import transaction
from procrastinate.contrib.django import app

from accounts.audit import Actor, record
from accounts.models import PasswordLink, User
from accounts.people import mails
from accounts.people.users import hash_password, put_password
from accounts.sessions.revocation import lock_user
from config.api.problems import InvalidRequest, NotFound
from config.jobs.mail import Refused
from config.jobs.queue import RESETS, UNHURRIED, crowded

log = logging.getLogger(__name__)

LIFETIMES = {
    PasswordLink.Kind.RESET: timedelta(minutes=30),
    PasswordLink.Kind.INVITATION: timedelta(hours=72),
    PasswordLink.Kind.ONE_TIME: timedelta(hours=24),
}
HOW: Mapping[str, str] = {
    PasswordLink.Kind.RESET: "a mailed link (reset)",
    PasswordLink.Kind.INVITATION: "a mailed link (invitation)",
    PasswordLink.Kind.ONE_TIME: "a one-time password",
}
# What a stranger can have sent to one person within the lifetime of a reset link.
RESETS_AT_A_TIME = 3
FORGOTTEN_AFTER = timedelta(days=1)
SAID_EVERY_SECONDS = 60


class LinkSpent(NotFound):
    """One answer for links that are unknown, expired, used or replaced, or whose person may not sign in."""

    default_detail = "This link does not work any more. Ask for a new one."


class Disabled(InvalidRequest):
    """A link would not help somebody who may not sign in."""

    default_detail = "This person is disabled. Enable them first."


class NotInvited(InvalidRequest):
    """An invitation is for a beginning."""

    default_detail = (
        "Only people of a client who have no password yet are invited. Send them a reset instead."
    )


class Crowd:
    """Says of this process that resets are dropped, and not of each of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._next = 0.0

    def say(self) -> None:
        with self._lock:
            if monotonic() < self._next:
                return
            self._next = monotonic() + SAID_EVERY_SECONDS
        log.warning("resets_dropped")


CROWD = Crowd()


def request_reset(*, email: str, address: str | None, request_id: str) -> None:
    """Queues a reset for whoever has this email, if anybody has; while too many wait for nobody, and that is logged.

    One for each email would be no bound, since emails can be made up; and to find one that waits would take another
    time than to queue one, which would tell whose mail could not be sent.
    """
    if "@" not in email:
        # Nobody's address, and perhaps a password in the wrong field, which must not be kept with a job.
        return
    if crowded():
        CROWD.say()
        return
    job = app.configure_task("accounts.send_reset", queue=RESETS, priority=UNHURRIED)
    job.defer(email=email.lower(), address=address, request_id=request_id)


def request_link(*, user_id: UUID, kind: PasswordLink.Kind, by: Actor, now: datetime) -> None:
    """An operator has a reset or an invitation sent.

    Raises ``Disabled`` for somebody who may not sign in, and ``NotInvited`` for whom an invitation is not meant.
    """
    with transaction.atomic():
        user = lock_user(user_id)
        if not user.is_active:
            raise Disabled
        if kind == PasswordLink.Kind.INVITATION:
            if not user.may_be_invited:
                raise NotInvited
            User.objects.filter(pk=user.pk).update(invited_at=now)
        record(
            "user:password_link_requested", by=by, now=now, target=user, after={"kind": kind.value}
        )
        job = app.configure_task("accounts.send_password_link", queue="mail")
        job.defer(user_id=str(user.pk), kind=kind.value)


def send_reset(
    *, email: str, address: str | None, request_id: str, again: bool = False, now: datetime
) -> bool:
    """Mails a reset to the person with this email; False where there is none to mail it to, or too many were.

    False, too, where the mail server refuses it for good, which is in the log: strangers can ask for any number of
    those, and no operator can do anything about it. ``again``: as ``send_link`` has it.
    """
    user = User.objects.filter(email=email, is_active=True).first()
    if user is None:
        return False
    asked = Actor(name="whoever asked for a reset", address=address, request_id=request_id)
    kind = PasswordLink.Kind.RESET
    try:
        return send_link(user_id=user.pk, kind=kind, asked=asked, again=again, now=now)
    except Refused:
        return False


def send_link(
    *,
    user_id: UUID,
    kind: PasswordLink.Kind,
    asked: Actor | None = None,
    again: bool = False,
    now: datetime,
) -> bool:
    """Makes a link and mails it; False for somebody who is gone or disabled.

    ``asked`` is a stranger, who is bounded and audited here, where it is known whom he meant; ``again``: it was tried
    before, and has been counted and audited then. A link whose mail could not be handed over is taken back, so that
    it does not stand before an older one that did arrive.
    """
    secret = secrets.token_urlsafe(32)
    link = _make(user_id=user_id, kind=kind, secret=secret, asked=asked, again=again, now=now)
    if link is None:
        return False
    try:
        mails.send_password_link(to=link.user.email, kind=kind, secret=secret)
    except Exception:
        _take_back(link, counts=asked is not None and not again, now=now)
        raise
    return True


def find_link(presented: str, *, now: datetime) -> PasswordLink:
    """The link of a secret, with its user. Consumes nothing. Raises ``LinkSpent``."""
    link = (
        PasswordLink.objects.live(at=now)
        .select_related("user")
        .filter(secret_hash=_hash(presented))
        .first()
    )
    if link is None:
        raise LinkSpent
    return link


def use_link(
    *, presented: str, password: str, address: str | None, request_id: str, now: datetime
) -> int:
    """Sets the password of a link's person and ends every session. Gives the number of sessions ended.

    A link is used once, however many try at the same time. Raises ``LinkSpent``, and ``InvalidRequest`` for
    a poor password, which leaves the link as it was.
    """
    link = find_link(presented, now=now)
    encoded = hash_password(password, user=link.user)
    with transaction.atomic():
        try:
            user = lock_user(link.user_id)
        except User.DoesNotExist:
            raise LinkSpent from None
        if not PasswordLink.objects.live(at=now).filter(pk=link.pk).update(used_at=now):
            raise LinkSpent
        by = Actor(name=user.email, id=user.pk, address=address, request_id=request_id)
        reason = f"By {HOW[link.kind]}."
        return put_password(user=user, encoded=encoded, by=by, now=now, reason=reason)


def _make(
    *,
    user_id: UUID,
    kind: PasswordLink.Kind,
    secret: str,
    asked: Actor | None,
    again: bool,
    now: datetime,
) -> PasswordLink | None:
    with transaction.atomic():
        user = (
            User.objects.select_for_update(no_key=True).filter(pk=user_id, is_active=True).first()
        )
        if user is None or (asked and _has_enough(user, again=again, now=now)):
            return None
        PasswordLink.objects.filter(user=user, expires_at__lt=now - FORGOTTEN_AFTER).delete()
        if asked and not again:
            record(
                "user:password_link_requested",
                by=asked,
                now=now,
                target=user,
                after={"kind": kind.value},
            )
        return make_link(user, kind=kind, secret=secret, now=now)


def make_link(user: User, *, kind: PasswordLink.Kind, secret: str, now: datetime) -> PasswordLink:
    """The record of a secret that sets the password of somebody whose row the caller has locked."""
    return PasswordLink.objects.create(
        user=user,
        kind=kind,
        secret_hash=_hash(secret),
        epoch=user.epoch,
        made_at=now,
        expires_at=now + LIFETIMES[kind],
    )


def _take_back(link: PasswordLink, *, counts: bool, now: datetime) -> None:
    """Voids a link that nobody has got. One that counts is kept, or a broken mail server would be asked without end."""
    if counts:
        PasswordLink.objects.filter(pk=link.pk).update(used_at=now)
    else:
        link.delete()


def _has_enough(user: User, *, again: bool, now: datetime) -> bool:
    """Whether a stranger has had so many resets sent to somebody that these must do for a while.

    Those whose mail failed count as well, but not against what is tried again: it is one of them.
    """
    since = now - LIFETIMES[PasswordLink.Kind.RESET]
    resets = PasswordLink.objects.filter(user=user, kind=PasswordLink.Kind.RESET, made_at__gt=since)
    if again:
        resets = resets.filter(used_at=None)
    return resets.count() >= RESETS_AT_A_TIME


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "replace")).hexdigest()
