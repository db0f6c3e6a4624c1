"""One-time passwords, which an operator gives to a person who receives no mail.

The operator sees it once. It replaces the password, ends every session and is good for choosing a new password on the
account page within a day. It signs nobody in, so an operator never knows a working password.
"""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.db import transaction

from accounts import mails
from accounts.audit import Actor, check_reason, record
from accounts.models import PasswordLink, Session, User
from accounts.people.password_links import Disabled, LinkSpent, find_link, make_link
from accounts.people.users import lock_person
from accounts.rights import check_right, check_touch
from accounts.sessions.revocation import revoke_all
from accounts.typed_codes import as_typed, grouped, new_code
from config.platform.problems.problem import instant
from config.platform.text.forms import email_form

# 23 letters of 32 are 115 random bits, enough for a plain hash.
LENGTH = 23
ACTION = "user:one_time_password_set"


class OneTime(NamedTuple):
    """The password in groups, its expiry, and the number of ended sessions."""

    password: str
    expires_at: datetime
    ended: int


def set_one_time_password(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> OneTime:
    """Replaces a person's password by a one-time password and informs them by mail.

    Raises ``Disabled`` for a person who may not sign in, ``Erased``, and ``InvalidRequest`` without a reason.
    """
    check_reason(reason)
    secret = new_code(LENGTH)
    with transaction.atomic():
        user = lock_person(user_id)
        check_right(by=by, right="accounts.user_one_time")
        check_touch(user, by=by)
        if not user.is_active:
            raise Disabled
        User.objects.filter(pk=user_id).update(password=make_password(None))
        ended = revoke_all(
            user_id=user_id, by=by, reason=reason, now=now, why=Session.Ended.PASSWORD
        )
        # The revocation has moved the epoch; a link with the previous epoch would be void.
        user.refresh_from_db(fields=["epoch"])
        link = make_link(user, kind=PasswordLink.Kind.ONE_TIME, secret=secret, now=now)
        after = {"expires_at": instant(link.expires_at)}
        record(ACTION, user, by=by, now=now, reason=reason, after=after)
        mails.one_time_password_set(user=user, now=now)
    return OneTime(grouped(secret), link.expires_at, ended)


def find_one_time(*, email: str, password: str, now: datetime) -> str:
    """The secret of a typed one-time password, for ``use_link``. Raises ``LinkSpent``."""
    secret = as_typed(password)
    link = find_link(secret, now=now)
    is_theirs = email_form(link.user.email) == email_form(email.strip())
    if link.kind != PasswordLink.Kind.ONE_TIME or not is_theirs:
        raise LinkSpent
    return secret
