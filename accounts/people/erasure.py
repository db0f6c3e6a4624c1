"""Erases a person: personal data goes, the ledger stays. It cannot be undone.

The user's row stays under an anonymous email, because the ledger refers to it. The audit log is not rewritten: it
holds the email until its events are pruned (ADR 0027).
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.db import transaction
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast, Lower
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor, check_reason, record
from accounts.columns import PERSONAL_COLUMNS, PERSONAL_ROWS
from accounts.connections.disconnecting import disconnect_all
from accounts.factors.devices import rows_of
from accounts.models import (
    Client,
    Connection,
    ConsoleSession,
    PasswordLink,
    RefreshToken,
    Session,
    User,
)
from accounts.people.users import lock_person, replace_signatures
from accounts.rights import check_not_oneself, check_owner_left, check_touch
from accounts.sessions.revocation import revoke_all
from config.platform.problems.problem import Fault, InvalidRequest
from config.platform.text.forms import email_form, email_spellings

OTHER_EMAIL = Fault("/email", "mismatch", "This is not the email of the person to be erased.")
REASON_NAMES = Fault(
    "/reason", "personal", "Leave the email out: the reason stays in the audit log."
)


def erase_user(
    *, user_id: UUID, email: str, reason: str, by: Actor, now: datetime
) -> Mapping[str, int]:
    """Erases a person for good; returns the number of removed rows by kind.

    ``email`` is typed by the operator and must be the person's. Raises ``InvalidRequest`` if it is not, or if the
    reason is missing or names the person, ``NotYourself``, and ``Erased`` if it has been done before.
    """
    check_not_oneself(user_id, by)
    check_reason(reason)
    with transaction.atomic():
        _lock_clients_naming(user_id)
        user = lock_person(user_id)
        was, spellings = user.email, email_spellings(user.email)
        if email_form(email.strip()) != email_form(was):
            raise InvalidRequest(errors=[OTHER_EMAIL])
        if any(each in reason.lower() for each in spellings):
            raise InvalidRequest(errors=[REASON_NAMES])
        check_touch(user, by=by)
        check_owner_left(user)
        _make_nobody(user, now=now)
        replace_signatures(was=was, email=user.email)
        Client.objects.filter(alert_email__in=spellings).update(alert_email="")
        Client.objects.filter(_managed(spellings)).update(manager="")
        # Under the new email, like every later event.
        revoke_all(user_id=user_id, by=by, reason=reason, now=now)
        connections = disconnect_all(user_id=user_id, by=by, now=now, reason=reason)
        removed = {name: _remove(rows) for name, rows in _belongings(user_id).items()}
        for name, (rows, column) in _columns(user_id).items():
            removed[name] = rows.update(**{column: None})
        removed["connections"] = connections
        removed["queued mails"] = _delete_mail(user_id, spellings)
        after = {"removed": removed}
        record(
            "user:erased", user.email, by=by, now=now, target_id=user_id, reason=reason, after=after
        )
    return removed


def preview(*, user_id: UUID) -> Mapping[str, int]:
    """The number of rows by kind that :func:`erase_user` would remove. Changes nothing."""
    user = User.objects.get(pk=user_id)
    found = {name: rows.count() for name, rows in _belongings(user_id).items()}
    found |= {name: rows.count() for name, (rows, _) in _columns(user_id).items()}
    found["queued mails"] = _queued_mail(user_id, email_spellings(user.email)).count()
    return found


def _lock_clients_naming(user_id: UUID) -> None:
    """Locks the clients that name a person, before the person, as every rule does that locks both."""
    for email in User.objects.filter(pk=user_id).values_list("email", flat=True):
        spellings = email_spellings(email)
        naming = Client.objects.filter(Q(alert_email__in=spellings) | _managed(spellings))
        list(naming.order_by("pk").select_for_update(no_key=True).values_list("pk"))


def _managed(spellings: Collection[str]) -> Q:
    return reduce(or_, (Q(manager__iexact=each) for each in spellings))


def _make_nobody(user: User, *, now: datetime) -> None:
    user.email, user.email_form = f"erased-{user.pk}@erased.invalid", None
    user.password = make_password(None)
    user.is_active = user.is_staff = user.is_superuser = False
    user.last_login = user.invited_at = None
    user.erased_at = now
    user.save()
    user.groups.clear()
    user.user_permissions.clear()


def _belongings(user_id: UUID) -> dict[str, QuerySet[Any]]:
    """A person's rows outside the ledger, in the order in which they can be removed."""
    found: dict[str, QuerySet[Any]] = {
        "refresh tokens": RefreshToken.objects.filter(user=user_id),
        "sessions": Session.objects.filter(user=user_id),
        "mailed links": PasswordLink.objects.filter(user=user_id),
        "connections": Connection.objects.filter(user=user_id),
        "console sessions": ConsoleSession.objects.filter(user=user_id),
        **rows_of(user_id),
    }
    return found | {each.name: each.of(user_id) for each in PERSONAL_ROWS}


def _columns(user_id: UUID) -> dict[str, tuple[QuerySet[Any], str]]:
    """Rows of the ledger about a person, each kind with its column that erasure empties."""
    return {each.name: (each.of(user_id), each.column) for each in PERSONAL_COLUMNS}


def _remove(rows: QuerySet[Any]) -> int:
    number = rows.count()
    rows.delete()
    return number


def _queued_mail(user_id: UUID, spellings: Collection[str]) -> QuerySet[ProcrastinateJob]:
    """Jobs with mail to the person, and finished ones that name them, except jobs that a worker is doing now."""
    jobs = ProcrastinateJob.objects.filter(queue_name__in=("mail", "resets"))
    to_them, named = Q(args__user_id=str(user_id)), Q(pk__in=())
    for email in spellings:
        to_them |= Q(args__email__iexact=email) | Q(args__to__has_key=email)
        named |= Q(text__contains=email)
    names_them = ~Q(status="todo") & named
    with_text = jobs.annotate(text=Lower(Cast("args", TextField())))
    found: QuerySet[ProcrastinateJob] = with_text.filter(to_them | names_them)
    return found.exclude(status="doing")


def _delete_mail(user_id: UUID, spellings: Collection[str]) -> int:
    # Locked first: a worker that takes one of them meanwhile keeps it.
    locked = _queued_mail(user_id, spellings).select_for_update().values_list("pk", flat=True)
    found = list(locked)
    ProcrastinateJob.objects.filter(pk__in=found).delete()
    return len(found)
