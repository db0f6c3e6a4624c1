"""Mailed links to set a password: requested, made and sent by the worker, good for one use.

A request reveals nothing: it queues the same job for every email, and only the worker looks the person up. The job
contains no secret; the secret is made when the job runs and appears in the mail alone.
"""

import logging
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from threading import Lock
from time import monotonic
from uuid import UUID

from django.db import transaction
from procrastinate.contrib.django import app

from accounts import mails
from accounts.audit import Actor, record
from accounts.factors.devices import lacks_factor
from accounts.hashers import plain_hash
from accounts.models import PasswordLink, User
from accounts.people.users import hash_password, put_password
from accounts.sessions.revocation import lock_user
from config.platform.jobs.mail import Refused, Unaddressable
from config.platform.jobs.queue import RESETS, UNHURRIED, crowded
from config.platform.problems.problem import InvalidRequest, NotFound

log = logging.getLogger(__name__)

LIFETIMES = {
    PasswordLink.Kind.RESET: timedelta(minutes=30),
    PasswordLink.Kind.INVITATION: timedelta(hours=72),
    PasswordLink.Kind.ONE_TIME: timedelta(hours=24),
}
# The second in base64url.
SECRET_BYTES, SECRET_SIGNS = 32, 43
HOW: Mapping[str, str] = {
    PasswordLink.Kind.RESET: "a mailed link (reset)",
    PasswordLink.Kind.INVITATION: "a mailed link (invitation)",
    PasswordLink.Kind.ONE_TIME: "a one-time password",
}
# The most resets that strangers can send to one person within the lifetime of a link.
RESETS_AT_A_TIME = 3
FORGOTTEN_AFTER = timedelta(days=1)
WARN_EVERY_SECONDS = 60


class LinkSpent(NotFound):
    """The one answer to links that are unknown, expired, used or replaced, or whose person may not sign in."""

    default_detail = "This link no longer works. Ask for a new one."


class Disabled(InvalidRequest):
    default_detail = "This person is disabled. Enable them first."


class NotInvited(InvalidRequest):
    default_detail = "Only people of a client without a password can be invited. Send this person a reset instead."


class NoFactor(InvalidRequest):
    default_detail = (
        "This operator has no second factor yet, so an emailed link alone would be enough to sign in as them. "
        "Set a one-time password, or use manage.py changepassword."
    )


class DroppedResets:
    """Logs dropped resets at most once a minute in each process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._next = 0.0

    def warn(self) -> None:
        with self._lock:
            if monotonic() < self._next:
                return
            self._next = monotonic() + WARN_EVERY_SECONDS
        log.warning("resets_dropped")


DROPPED = DroppedResets()


def request_reset(*, email: str, address: str | None, request_id: str) -> None:
    """Queues a reset for an email, whether or not it has a user; drops and logs it while too many are queued.

    A limit per email would be no bound, because emails can be invented, and a search for a queued reset takes longer
    than queueing one, which would reveal whose mail is delayed.
    """
    if "@" not in email:
        # Not an address, and perhaps a password in the wrong field, which must not be stored with a job.
        return
    if crowded():
        DROPPED.warn()
        return
    job = app.configure_task("accounts.send_reset", queue=RESETS, priority=UNHURRIED)
    job.defer(email=email.lower(), address=address, request_id=request_id)


def request_link(*, user_id: UUID, kind: PasswordLink.Kind, by: Actor, now: datetime) -> None:
    """Queues a reset or an invitation on behalf of an operator.

    Raises ``Disabled`` for a person who may not sign in, ``NoFactor`` for an operator who has set up no second factor,
    and ``NotInvited`` for one who cannot be invited.
    """
    with transaction.atomic():
        user = lock_user(user_id)
        if not user.is_active:
            raise Disabled
        if lacks_factor(user):
            raise NoFactor
        if kind == PasswordLink.Kind.INVITATION:
            if not user.may_be_invited:
                raise NotInvited
            User.objects.filter(pk=user.pk).update(invited_at=now)
        record("user:password_link_requested", user, by=by, now=now, after={"kind": kind.value})
        job = app.configure_task("accounts.send_password_link", queue="mail")
        job.defer(user_id=str(user.pk), kind=kind.value)


def send_reset(
    *, email: str, address: str | None, request_id: str, again: bool = False, now: datetime
) -> bool:
    """Mails a reset to the person with an email; returns False without such a person, or after too many resets.

    Returns False also if the mail server refuses the mail for good, which is logged: strangers can request any number
    of those, and operators cannot mend them. They can mend ``Unaddressable``, which is raised. ``again`` marks a retry
    of the job.
    """
    user = User.objects.by_email(email).first()
    if user is None or not user.is_active:
        return False
    stranger = Actor(name="whoever asked for a reset", address=address, request_id=request_id)
    kind = PasswordLink.Kind.RESET
    try:
        return send_link(user_id=user.pk, kind=kind, stranger=stranger, again=again, now=now)
    except Unaddressable:
        raise
    except Refused:
        return False


def send_link(
    *,
    user_id: UUID,
    kind: PasswordLink.Kind,
    stranger: Actor | None = None,
    again: bool = False,
    now: datetime,
) -> bool:
    """Makes a link and mails it; returns False for a person who is gone or disabled, and an operator without a factor.

    A request of a ``stranger`` is limited and audited here, unless it is tried ``again``: then the first try did both.
    A link is good once its mail is accepted, so that one of a try that failed, or whose worker died, neither voids an
    older one that did arrive nor counts against the next try.
    """
    secret = secrets.token_urlsafe(SECRET_BYTES)
    link = _make(user_id=user_id, kind=kind, secret=secret, stranger=stranger, again=again, now=now)
    if link is None:
        return False
    try:
        mails.send_password_link(link, secret=secret)
    except Exception:
        if stranger is None or again:
            link.delete()
        raise
    PasswordLink.objects.filter(pk=link.pk).update(used_at=None)
    return True


def signs_of(copied: str) -> str:
    """The secret of a link as somebody copied it: what follows its 43 signs, such as a full stop, is no part of it."""
    return copied[:SECRET_SIGNS]


def find_link(presented: str, *, now: datetime) -> PasswordLink:
    """The link with a secret, with its user; consumes nothing. Raises ``LinkSpent``."""
    link = (
        PasswordLink.objects.live(at=now)
        .select_related("user")
        .filter(secret_hash=plain_hash(presented))
        .first()
    )
    if link is None:
        raise LinkSpent
    return link


def use_link(
    *, presented: str, password: str, address: str | None, request_id: str, now: datetime
) -> int:
    """Sets the password of a link's person and ends every session; returns the number of ended sessions.

    Of several concurrent uses one succeeds. Raises ``LinkSpent``, and ``InvalidRequest`` for a poor password, which
    leaves the link valid.
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
    stranger: Actor | None,
    again: bool,
    now: datetime,
) -> PasswordLink | None:
    with transaction.atomic():
        user = (
            User.objects.select_for_update(no_key=True).filter(pk=user_id, is_active=True).first()
        )
        if (
            user is None
            or lacks_factor(user)
            or (stranger and _has_reached_limit(user, again=again, now=now))
        ):
            return None
        PasswordLink.objects.filter(user=user, expires_at__lt=now - FORGOTTEN_AFTER).delete()
        if stranger and not again:
            after = {"kind": kind.value}
            record("user:password_link_requested", user, by=stranger, now=now, after=after)
        return make_link(user, kind=kind, secret=secret, now=now)


def make_link(user: User, *, kind: PasswordLink.Kind, secret: str, now: datetime) -> PasswordLink:
    """Stores a link for a user whose row the caller has locked. A mailed one is not good yet."""
    return PasswordLink.objects.create(
        user=user,
        kind=kind,
        secret_hash=plain_hash(secret),
        epoch=user.epoch,
        made_at=now,
        expires_at=now + LIFETIMES[kind],
        used_at=None if kind == PasswordLink.Kind.ONE_TIME else now,
    )


def _has_reached_limit(user: User, *, again: bool, now: datetime) -> bool:
    """Returns whether strangers have reached the limit of resets for a user.

    Resets whose mail failed the first time count too, but not against a retry, which is one of them.
    """
    since = now - LIFETIMES[PasswordLink.Kind.RESET]
    resets = PasswordLink.objects.filter(user=user, kind=PasswordLink.Kind.RESET, made_at__gt=since)
    if again:
        resets = resets.filter(used_at=None)
    return resets.count() >= RESETS_AT_A_TIME
