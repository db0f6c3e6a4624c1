"""Rules for operators: who becomes one, with which roles, and who remains an owner."""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from accounts import mails
from accounts.audit import Actor, check_reason, record
from accounts.factors.setting_up import SET_UP_LETTERS, SET_UP_WITHIN, keep_set_up_code
from accounts.models import AuditEvent, PasswordLink, Role, User
from accounts.people.password_links import make_link
from accounts.people.users import add_operator, lock_person
from accounts.rights import check_not_oneself, check_owner, check_owner_left
from accounts.typed_codes import grouped, new_code
from config.platform.problems.problem import Fault, InvalidRequest

NO_ROLE = Fault("/roles", "required", "Choose at least one role.")
UNKNOWN_ROLE = Fault("/roles", "unknown", f"Roles are {', '.join(Role.values)}.")
SAME_ROLES = Fault("/roles", "unchanged", "The operator already has these roles.")


class BelongsToClient(InvalidRequest):
    default_detail = (
        "This person belongs to a client, and operators belong to none. "
        "Add a separate account for the console."
    )


class NotAccepted(InvalidRequest):
    """Whoever has the mailed link would enter the console."""

    default_detail = (
        "This person has never set a password. Set a one-time password for them, "
        "and try again once it has been used."
    )


class NotEnabled(InvalidRequest):
    default_detail = "This person is disabled. Enable the person first."


class IsOperator(InvalidRequest):
    default_detail = "This person is already an operator. Change the roles instead."


class IsNoOperator(InvalidRequest):
    default_detail = "This person is not an operator."


def make_operator(
    *, user_id: UUID, roles: Collection[str], reason: str, by: Actor, now: datetime
) -> None:
    """Lets a person enter the console with these roles.

    The person belongs to no client, may sign in and has set a password. Raises ``NotAnOwner`` unless an owner asks.
    """
    check_not_oneself(user_id, by)
    wanted = _checked(roles, reason=reason)
    with transaction.atomic():
        user = lock_person(user_id)
        check_owner(by=by)
        if user.is_staff:
            raise IsOperator
        if user.client_id is not None:
            raise BelongsToClient
        if not user.is_active:
            raise NotEnabled
        if not user.has_usable_password():
            raise NotAccepted
        user.is_staff = True
        user.put_roles(wanted)
        _record(user, before=_seen(set(), operator=False), reason=reason, by=by, now=now)


def add_by_code(
    *, email: str, roles: Collection[str], reason: str, by: Actor, now: datetime
) -> str:
    """Adds an operator with these roles, and returns their set-up code, to be told to them and never mailed.

    It is good as a one-time password, by which they choose a password, and then for setting up a second factor. The
    mail holds nothing that lets anybody in. The same asked again by the same owner, as by a double click, makes another
    code for the same operator, because the browser shows the second answer. Raises ``InvalidRequest`` for an invalid
    or taken email.
    """
    wanted, secret = _checked(roles, reason=reason), new_code(SET_UP_LETTERS)
    with transaction.atomic():
        check_owner(by=by)
        user = _just_added(email=email, roles=wanted, reason=reason, by=by, now=now)
        if user is None:
            user = add_operator(
                email=email, password=None, roles=wanted, reason=reason, by=by, now=now
            )
            mails.operator_added(user=user, roles=sorted(wanted), by=by.name)
        else:
            # Of two answers one is read, so one code is good.
            PasswordLink.objects.filter(user=user).delete()
        make_link(user, kind=PasswordLink.Kind.ONE_TIME, secret=secret, now=now)
        if settings.OPERATOR_SECOND_FACTOR:
            keep_set_up_code(user=user, secret=secret, by=by, now=now, reason=reason)
    return grouped(secret)


def _just_added(
    *, email: str, roles: Collection[str], reason: str, by: Actor, now: datetime
) -> User | None:
    """The operator whom this owner has added with these roles while the code is good, and who has not begun."""
    found = User.objects.by_email(email).first()
    if found is None:
        return None
    asked = AuditEvent.objects.filter(
        action="operator:added", target_id=str(found.pk), actor_id=by.id,
        actor=by.name, reason=reason, at__gt=now - SET_UP_WITHIN,
    )  # fmt: skip
    if not asked.exists():
        return None
    user = lock_person(found.pk)
    is_new = user.is_staff and user.is_active and user.last_login is None
    has_begun = user.has_usable_password() or user.roles != roles
    return user if is_new and not has_begun else None


def change_roles(
    *, user_id: UUID, roles: Collection[str], reason: str, by: Actor, now: datetime
) -> None:
    """Gives and takes an operator's roles, from the next request on.

    An operator who belongs to a client, from before that was refused, may lose roles and gain none.
    """
    check_not_oneself(user_id, by)
    wanted = _checked(roles, reason=reason)
    with transaction.atomic():
        user = lock_person(user_id)
        check_owner(by=by)
        if not user.is_staff:
            raise IsNoOperator
        had = user.roles
        if wanted == had:
            raise InvalidRequest(errors=[SAME_ROLES])
        if user.client_id is not None and not wanted <= had:
            raise BelongsToClient
        if Role.OWNER not in wanted:
            check_owner_left(user)
        user.put_roles(wanted)
        _record(user, before=_seen(had), reason=reason, by=by, now=now)


def dismiss_operator(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> None:
    """Takes the console and every right in it from an operator."""
    check_not_oneself(user_id, by)
    check_reason(reason)
    with transaction.atomic():
        user = lock_person(user_id)
        check_owner(by=by)
        if not user.is_staff:
            raise IsNoOperator
        check_owner_left(user)
        had = user.roles
        user.is_staff = False
        user.put_roles(())
        _record(user, before=_seen(had), reason=reason, by=by, now=now)


def _checked(roles: Collection[str], *, reason: str) -> frozenset[str]:
    check_reason(reason)
    wanted = frozenset(str(role) for role in roles)
    if not wanted:
        raise InvalidRequest(errors=[NO_ROLE])
    if not wanted <= set(Role.values):
        raise InvalidRequest(errors=[UNKNOWN_ROLE])
    return wanted


def _record(user: User, *, before: dict[str, Any], reason: str, by: Actor, now: datetime) -> None:
    after = _seen(user.roles, operator=user.is_staff)
    record("user:operator_set", user, by=by, now=now, reason=reason, before=before, after=after)


def _seen(roles: Collection[str], *, operator: bool = True) -> dict[str, Any]:
    return {"operator": operator, "roles": sorted(roles)}
