"""Rights of operators over other operators and accounts, checked by rules inside their transaction.

The console asks before it shows a page; a rule checks again, because rights may have been removed since.
"""

from uuid import UUID

from django.contrib.auth.models import Group

from accounts.audit import Actor
from accounts.models import Role, User
from config.platform.problems.problem import InvalidRequest, PermissionRefused


class NotYourRight(PermissionRefused):
    """The actor's roles do not include the action, or do not any more."""

    default_detail = "Your roles do not include this. Ask an owner."


class NotYourself(InvalidRequest):
    """Operators cannot lock themselves out: each may be the last one."""

    default_detail = "You cannot do this to yourself. Ask another operator."


class NotAnOwner(PermissionRefused):
    default_detail = "Only an owner may change operators and their roles."


class LastOwner(InvalidRequest):
    """Without an owner nobody could give a role again."""

    default_detail = "This is the last owner. Make somebody else an owner first."


def check_right(*, by: Actor, right: str) -> None:
    """Raises ``NotYourRight`` unless the actor has the right now.

    Commands and jobs have no person (``id``) and are not asked: whoever starts them may do everything.
    """
    if by.id is None:
        return
    operator = User.objects.filter(pk=by.id, is_staff=True).first()
    if operator is None or not operator.has_perm(right):
        raise NotYourRight


def check_not_oneself(user_id: UUID, by: Actor) -> None:
    if by.id == user_id:
        raise NotYourself


def check_owner(*, by: Actor) -> None:
    """Raises ``NotAnOwner`` unless the actor is an owner. Changes of operators wait for each other from here on."""
    _lock_owners()
    if by.id is not None and not User.objects.owners().filter(pk=by.id).exists():
        raise NotAnOwner


def check_touch(user: User, *, by: Actor) -> None:
    """Raises ``NotAnOwner`` if the person is an operator and the actor no owner."""
    if user.is_staff or user.is_superuser:
        check_owner(by=by)


def check_owner_left(user: User) -> None:
    """Raises ``LastOwner`` if nobody else is an owner; of two owners who remove each other at once, one remains."""
    if user.is_active and user.is_owner:
        _lock_owners()
        if not User.objects.owners().exclude(pk=user.pk).exists():
            raise LastOwner


def _lock_owners() -> None:
    """Locks the group of owners until the transaction ends; always after the row of the person to be changed."""
    Group.objects.select_for_update().get_or_create(name=Role.OWNER.value)
