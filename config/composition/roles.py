"""Operators' rights by role, from the acts and pages that the apps declare; rights without a role are an owner's.

Rights are defined in code and groups have only members, so that no row can widen a role and an upgrade adds a new page
or action with its roles. Permissions in rows, which operators from before roles may have, are ignored.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

from django.contrib.auth.backends import BaseBackend
from django.core.exceptions import PermissionDenied

from accounts.models import Role, User
from config.platform.acts import PAGES, RIGHTS, Proof


@cache
def rights_of(role: str) -> frozenset[str]:
    """Returns the names of a role's rights; called only after every app has declared its own."""
    views = {
        page.model.replace(".", ".view_")
        for page in PAGES
        if role in {Role.AUDITOR, Role.OWNER, *page.roles}
    }
    return frozenset(views | {each.name for each in RIGHTS if role in {Role.OWNER, *each.roles}})


def wants_proof(right: str, *, people: Iterable[User | None]) -> bool:
    """Returns whether an action on these people requires a recent proof; an undeclared action does."""
    declared = RIGHTS.get(right)
    proof = declared.proof if declared else Proof.GRAVE
    is_on_operator = any(each is not None and each.is_staff for each in people)
    return proof == Proof.GRAVE or (proof == Proof.GRAVE_FOR_OPERATORS and is_on_operator)


class RoleBackend(BaseBackend):
    """Decides Django's permissions by an operator's roles; it authenticates nobody.

    A refusal is final, so that Django does not ask the authenticating backend, which would use permissions in rows.
    """

    def get_group_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        # A right applies to every row, and an anonymous user has no roles.
        if obj is not None or not user_obj.is_active:
            return set()
        return set().union(*map(rights_of, user_obj.roles))

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        if perm not in self.get_group_permissions(user_obj, obj):
            raise PermissionDenied
        return True

    def has_module_perms(self, user_obj: Any, app_label: str) -> bool:
        rights = self.get_group_permissions(user_obj)
        if not any(right.startswith(f"{app_label}.") for right in rights):
            raise PermissionDenied
        return True
