"""Rules for people: adding and moving them, and changing their email and password."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet

from accounts import mails
from accounts.audit import Actor, check_reason, record, record_each
from accounts.columns import SIGNED_BY_EMAIL
from accounts.hashers import check_password
from accounts.models import Client, PasswordLink, Role, Session, User
from accounts.people.emails import is_email
from accounts.rights import check_right, check_touch
from accounts.seats import within_seats
from accounts.sessions.revocation import lock_user, revoke_all
from accounts.sessions.sign_in import MAX_PASSWORD
from config.platform.db.connections import release_connection
from config.platform.problems.constraints import refused_as
from config.platform.problems.problem import Fault, InvalidRequest
from config.platform.text.forms import email_form, password_form

EMAIL_TAKEN = Fault("/email", "unique", "This email is taken.")
NOT_AN_EMAIL = Fault("/email", "invalid", "This is not an email address.")
SAME_CLIENT = Fault("/client", "unchanged", "The person already belongs to this client.")

OPERATORS_HAVE_NONE = Fault(
    "/client", "operator", "This is an operator, and operators belong to no client."
)


class WrongPassword(InvalidRequest):
    """A wrong current password. Not a 401: the caller stays signed in."""

    default_detail = "That is not your current password."


class Erased(InvalidRequest):
    default_detail = "This person has been erased, which cannot be undone."


def add_user(*, email: str, client: Client | None, by: Actor, now: datetime) -> User:
    """Adds a person without a password. Raises ``InvalidRequest`` for an invalid or taken email (in any case)."""
    return add_users(emails=[email], client=client, by=by, now=now)[0]


def add_users(
    *, emails: Sequence[str], client: Client | None, by: Actor, now: datetime
) -> list[User]:
    """Adds several people without passwords, or nobody if one email is invalid or taken."""
    with within_seats(client, by=by, now=now):
        return create_users(emails=emails, client=client, by=by, now=now)


def create_users(
    *, emails: Sequence[str], client: Client | None, by: Actor, now: datetime
) -> list[User]:
    """Does the work of ``add_users``, for rules that count the seats themselves."""
    for email in emails:
        _check_email(email)
    people = [
        User(email=email.lower(), client=client, password=make_password(None), created_at=now)
        for email in emails
    ]
    with transaction.atomic():
        with refused_as(EMAIL_TAKEN):
            User.objects.bulk_create(people)
        named = [(user.email, user.pk) for user in people]
        after = {"client": client.name if client else None}
        record_each("user:created", by=by, now=now, of=named, after=after)
    return people


def add_operator(
    *,
    email: str,
    password: str | None,
    roles: Collection[str] = (Role.OWNER,),
    reason: str = "",
    by: Actor,
    now: datetime,
) -> User:
    """Adds an operator, who belongs to no client and so cannot use the API.

    Raises ``InvalidRequest`` for an invalid or taken email, and with a fault for each validator that the password
    fails.
    """
    _check_email(email)
    operator = User(email=email.lower(), is_staff=True, created_at=now)
    operator.password = (
        make_password(None) if password is None else hash_password(password, user=operator)
    )
    with transaction.atomic():
        with refused_as(EMAIL_TAKEN):
            operator.save()
        operator.put_roles(roles)
        after = {**described(operator), "roles": sorted(operator.roles)}
        record("operator:added", operator, by=by, now=now, reason=reason, after=after)
    return operator


def change_email(*, user_id: UUID, email: str, reason: str, by: Actor, now: datetime) -> User:
    """Changes a person's email and informs the previous address by mail; sessions go on.

    Raises ``InvalidRequest`` for an invalid or taken email, and without a reason. With the email goes the account,
    so the action is a right of its own.
    """
    check_reason(reason)
    _check_email(email)
    with transaction.atomic():
        user = lock_person(user_id)
        check_right(by=by, right="accounts.user_email")
        check_touch(user, by=by)
        before = described(user)
        user.email = email.lower()
        if user.email == before["email"]:
            return user
        # A link sent to the previous address must no longer work, an invitation included.
        PasswordLink.objects.filter(user=user).delete()
        user.invited_at = None
        with refused_as(EMAIL_TAKEN):
            user.save(update_fields=["email", "invited_at"])
            # By itself: the trigger empties the form of another email, where it is the same too.
            user.email_form = email_form(user.email)
            user.save(update_fields=["email_form"])
        replace_signatures(was=before["email"], email=user.email)
        before, after = {"email": before["email"]}, {"email": user.email}
        record(
            "user:email_changed", user, by=by, now=now, reason=reason, before=before, after=after
        )
        if user.has_usable_password():
            # Without a password nobody has signed in by the previous email, which may be a stranger's.
            mails.email_changed(user=user, was=before["email"], now=now)
    return user


def replace_signatures(*, was: str, email: str) -> None:
    """Replaces an email in all rows that name their author by email, except the audit log."""
    for each in SIGNED_BY_EMAIL:
        rows: QuerySet[Any] = QuerySet(each.model)
        rows.filter(**{each.column: was}).update(**{each.column: email})


def move_user(
    *, user_id: UUID, client: Client | None, reason: str, by: Actor, now: datetime
) -> int:
    """Moves a person to another client, or to none; returns the number of ended sessions.

    Tokens name the client, so all sessions end. The ledger keeps each call with its client, and the person's own
    total of the month continues. An open invitation is void, as every link is after a revocation.
    """
    check_reason(reason)
    with within_seats(client, by=by, now=now):
        user = lock_person(user_id)
        check_touch(user, by=by)
        before, after = _client_of(user.client), _client_of(client)
        if before == after:
            raise InvalidRequest(errors=[SAME_CLIENT])
        if user.is_staff and client is not None:
            raise InvalidRequest(errors=[OPERATORS_HAVE_NONE])
        User.objects.filter(pk=user_id).update(client=client, invited_at=None)
        record("user:moved", user, by=by, now=now, reason=reason, before=before, after=after)
        return revoke_all(user_id=user_id, by=by, reason=reason, now=now)


def set_password(*, user_id: UUID, password: str, by: Actor, now: datetime) -> int:
    """Sets a password and ends every session; returns the number of ended sessions.

    Raises ``InvalidRequest`` with a fault for each validator that the password fails. The password is hashed before
    the row is locked, because that takes 20 ms.
    """
    encoded = hash_password(password, user=User.objects.get(pk=user_id))
    with transaction.atomic():
        return put_password(user=lock_person(user_id), encoded=encoded, by=by, now=now)


def hash_password(password: str, *, user: User) -> str:
    """Hashes the one form of a valid password.

    Raises ``InvalidRequest`` with a fault for each validator that it fails.
    """
    password = password_form(password)
    if len(password) > MAX_PASSWORD:
        fault = Fault("/password", "max_length", f"At most {MAX_PASSWORD} characters.")
        raise InvalidRequest(errors=[fault])
    try:
        validate_password(password, user=user)
    except ValidationError as error:
        raise InvalidRequest(
            errors=[
                Fault("/password", str(each.code or "invalid"), sentence)
                for each in error.error_list
                for sentence in each.messages
            ]
        ) from None
    return make_password(password)


def put_password(*, user: User, encoded: str, by: Actor, now: datetime, reason: str = "") -> int:
    """Stores a hashed password and ends every session, for a caller that holds the lock of the user."""
    User.objects.filter(pk=user.pk).update(password=encoded)
    record("user:password_set", user, by=by, now=now, reason=reason)
    if user.has_usable_password():
        mails.password_changed(user=user, now=now)
    why = Session.Ended.PASSWORD
    reason = "A new password was set."
    return revoke_all(user_id=user.pk, by=by, reason=reason, why=why, now=now)


def change_password(*, user_id: UUID, current: str, new: str, by: Actor, now: datetime) -> int:
    """Changes a person's own password and ends every session; returns the number of ended sessions.

    Raises ``WrongPassword`` for a wrong ``current`` one, and ``InvalidRequest`` as :func:`set_password` does.
    """
    known = User.objects.get(pk=user_id)
    # The argon2 executor may be busy for seconds.
    release_connection()
    if not check_password(current, known.password):
        raise _wrong_password()
    try:
        encoded = hash_password(new, user=known)
    except InvalidRequest as refusal:
        faults = [Fault("/new", fault.code, fault.detail) for fault in refusal.errors]
        raise InvalidRequest(errors=faults) from None
    with transaction.atomic():
        user = lock_user(user_id)
        # A revocation or another new password meanwhile, both of which move the epoch, takes precedence.
        if user.epoch != known.epoch:
            raise _wrong_password()
        return put_password(user=user, encoded=encoded, by=by, now=now)


def lock_person(user_id: UUID) -> User:
    """Locks the row of a person who has not been erased. Raises ``Erased``."""
    user = lock_user(user_id)
    if user.erased_at is not None:
        raise Erased
    return user


def _check_email(email: str) -> None:
    if not is_email(email):
        raise InvalidRequest(errors=[NOT_AN_EMAIL])


def _wrong_password() -> WrongPassword:
    return WrongPassword(errors=[Fault("/current", "wrong", WrongPassword.default_detail)])


def described(user: User) -> dict[str, Any]:
    """The members of an audit event about a person."""
    return {"email": user.email, "client": user.client.name if user.client else None}


def _client_of(client: Client | None) -> dict[str, Any]:
    """The members of an audit event about a client; its name alone may be ambiguous."""
    return {
        "client": client.name if client else None,
        "client_id": str(client.pk) if client else None,
    }
