"""One-time passwords: what an operator can give somebody when no mail arrives.

One is made here and shown to the operator once. It replaces the password and ends every session, and it is good for
one thing: to choose a new password on our own page, within a day. It signs nobody in anywhere, so an operator never
knows a password that works, and a person cannot put off changing it.
"""

import secrets
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.db import transaction

from accounts.audit import Actor, record
from accounts.models import PasswordLink, Session, User
from accounts.people import mails
from accounts.people.password_links import Disabled, LinkSpent, find_link, make_link
from accounts.people.users import check_reason, lock_person
from accounts.sessions.revocation import revoke_all
from config.api.problems import instant

# No letter that is easily taken for another sign; 20 of 32 are 100 random bits.
LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH, GROUP = 20, 4
MISREAD = str.maketrans("OIL", "011")
ACTION = "user:one_time_password_set"


class OneTime(NamedTuple):
    """The password as it is read to the person, when it runs out, and the number of sessions ended."""

    password: str
    expires_at: datetime
    ended: int


def set_one_time_password(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> OneTime:
    """Replaces somebody's password by a one-time one, and tells them by mail that it was done.

    Raises ``Disabled`` for somebody who may not sign in, ``Erased``, and ``InvalidRequest`` without a reason.
    """
    check_reason(reason)
    secret = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
    with transaction.atomic():
        user = lock_person(user_id)
        if not user.is_active:
            raise Disabled
        User.objects.filter(pk=user_id).update(password=make_password(None))
        ended = revoke_all(
            user_id=user_id, by=by, reason=reason, now=now, why=Session.Ended.PASSWORD
        )
        # The revocation has moved the epoch, which would void what was made before it.
        user.refresh_from_db(fields=["epoch"])
        link = make_link(user, kind=PasswordLink.Kind.ONE_TIME, secret=secret, now=now)
        record(
            ACTION,
            by=by,
            now=now,
            target=user,
            reason=reason,
            after={"expires_at": instant(link.expires_at)},
        )
        mails.one_time_password_set(user=user, now=now)
    return OneTime(_grouped(secret), link.expires_at, ended)


def find_one_time(*, email: str, password: str, now: datetime) -> str:
    """The secret of a one-time password as somebody typed it, for ``use_link``. Raises ``LinkSpent``."""
    secret = "".join(password.split()).replace("-", "").upper().translate(MISREAD)
    link = find_link(secret, now=now)
    if link.kind != PasswordLink.Kind.ONE_TIME or link.user.email != email.strip().lower():
        raise LinkSpent
    return secret


def _grouped(secret: str) -> str:
    return "-".join(secret[at : at + GROUP] for at in range(0, LENGTH, GROUP))
