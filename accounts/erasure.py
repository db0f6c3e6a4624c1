"""Erasing a person: what is personal goes, what is owed an account of stays. It cannot be undone.

The row itself stays under a name that leads nowhere, because the ledger refers to it. The audit log is not
rewritten: it holds the email until its events are pruned. Why is told in ADR 0027.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils.module_loading import import_string

from accounts.audit import Actor, record
from accounts.connections.disconnecting import disconnect_all
from accounts.models import Connection, PasswordLink, RefreshToken, Session, User
from accounts.people import check_not_oneself, check_reason, lock_person, sign_anew
from accounts.revocation import revoke_all
from config.problems import Fault, InvalidRequest

OTHER_EMAIL = Fault("/email", "mismatch", "This is not the email of the person to be erased.")
REASON_NAMES = Fault("/reason", "personal", "Leave the email out: the reason is kept.")

# Mail to the person, and past mail that names them; but not what a worker is sending at this very moment.
_THEIR_MAIL = """
FROM procrastinate_jobs WHERE queue_name IN ('mail', 'resets') AND status <> 'doing'
AND (args->>'user_id' = %(user_id)s OR lower(args->>'email') = %(email)s OR args->'to' ? %(email)s
     OR (status <> 'todo' AND position(%(email)s IN lower(args::text)) > 0))
"""


def erase_user(
    *, user_id: UUID, email: str, reason: str, by: Actor, now: datetime
) -> Mapping[str, int]:
    """Removes a person for good; gives how many of what went with them.

    ``email`` is typed by who asks for it, and must be the person's. Raises ``InvalidRequest`` where it is not, or
    where the reason is missing or names the person, ``NotYourself``, and ``Erased`` where it has been done before.
    """
    check_not_oneself(user_id, by)
    check_reason(reason)
    with transaction.atomic():
        user = lock_person(user_id)
        was = user.email
        if email.strip().lower() != was:
            raise InvalidRequest(errors=[OTHER_EMAIL])
        if was in reason.lower():
            raise InvalidRequest(errors=[REASON_NAMES])
        _make_nobody(user, now=now)
        sign_anew(was=was, email=user.email)
        # Under the new name, like everything that is written from here on.
        revoke_all(user_id=user_id, by=by, reason=reason, now=now)
        connections = disconnect_all(user_id=user_id, by=by, now=now, reason=reason)
        removed = {name: _remove(rows) for name, rows in _belongings(user_id).items()}
        removed["connections"] = connections
        removed["queued mails"] = _forget_mail(user_id, was)
        record(
            "user:erased",
            by=by,
            now=now,
            target=user.email,
            target_id=user_id,
            reason=reason,
            after={"removed": removed},
        )
    return removed


def foresee(*, user_id: UUID) -> Mapping[str, int]:
    """How many of what :func:`erase_user` would remove. Changes nothing."""
    user = User.objects.get(pk=user_id)
    found = {name: rows.count() for name, rows in _belongings(user_id).items()}
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(*) {_THEIR_MAIL}", {"user_id": str(user_id), "email": user.email}
        )
        found["queued mails"] = cursor.fetchone()[0]
    return found


def _make_nobody(user: User, *, now: datetime) -> None:
    user.email = f"erased-{user.pk}@erased.invalid"
    user.password = make_password(None)
    user.is_active = user.is_staff = user.is_superuser = False
    user.last_login = user.invited_at = None
    user.erased_at = now
    user.save()
    user.groups.clear()
    user.user_permissions.clear()


def _belongings(user_id: UUID) -> dict[str, QuerySet[Any]]:
    """What there is of a person beside the ledger, in the order in which it can be removed."""
    found: dict[str, QuerySet[Any]] = {
        "refresh tokens": RefreshToken.objects.filter(user=user_id),
        "sessions": Session.objects.filter(user=user_id),
        "mailed links": PasswordLink.objects.filter(user=user_id),
        "connections": Connection.objects.filter(user=user_id),
    }
    for name, source in settings.PERSONAL_RECORDS.items():
        rows: Callable[[UUID], QuerySet[Any]] = import_string(source)
        found[name] = rows(user_id)
    return found


def _remove(rows: QuerySet[Any]) -> int:
    number = rows.count()
    if rows.model is RefreshToken:
        # Links between them would be taken apart one by one; they all go.
        rows.update(replaced_by=None)
    rows.delete()
    return number


def _forget_mail(user_id: UUID, email: str) -> int:
    with connection.cursor() as cursor:
        # By hand, because the package's models are read-only.
        cursor.execute(f"DELETE {_THEIR_MAIL}", {"user_id": str(user_id), "email": email})
        return int(cursor.rowcount)
