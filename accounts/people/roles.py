"""Rules for operators: who becomes one, with which roles, and who remains an owner."""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from accounts.audit import Actor, check_reason, record
from accounts.models import Role, User
from accounts.people.access import check_not_oneself
from accounts.people.rights import check_owner, check_owner_left
from accounts.people.users import lock_person
from config.api.problems import Fault, InvalidRequest

NO_ROLE = Fault("/roles", "required", "Choose at least one role.")
UNKNOWN_ROLE = Fault("/roles", "unknown", f"Roles are {', '.join(Role.values)}.")
SAME_ROLES = Fault("/roles", "unchanged", "The operator has these roles already.")


class BelongsToClient(InvalidRequest):
    default_detail = (
        "This person belongs to a client, and operators belong to none. "
        "Add an account for the console alone."
    )


class NotAccepted(InvalidRequest):
    """Whoever has the mailed link would enter the console."""

    default_detail = (
        "This person has never set a password. Set a one-time password for them, "
        "and try again once it was used."
    )


class NotEnabled(InvalidRequest):
    default_detail = "This person is disabled. Enable the person first."


class IsOperator(InvalidRequest):
    default_detail = "This person is an operator already. Change the roles instead."


class IsNoOperator(InvalidRequest):
    default_detail = "This person is no operator."


def make_operator(
    *, user_id: UUID, roles: Collection[str], reason: str, by: Actor, now: datetime
) -> None:
    """Lets a person enter the console with these roles.

    The person belongs to no client, may sign in and has set a password. Raises ``NotAnOwner`` unless an owner asks.
    """
    wanted = _checked(roles, user_id=user_id, reason=reason, by=by)
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


def change_roles(
    *, user_id: UUID, roles: Collection[str], reason: str, by: Actor, now: datetime
) -> None:
    """Gives and takes an operator's roles, from the next request on; single rights from before roles end.

    An operator who belongs to a client, from before that was refused, may lose roles and gain none.
    """
    wanted = _checked(roles, user_id=user_id, reason=reason, by=by)
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


def _checked(roles: Collection[str], *, user_id: UUID, reason: str, by: Actor) -> frozenset[str]:
    check_not_oneself(user_id, by)
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
