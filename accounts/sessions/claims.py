"""The claims of an access token about plan and entitlements, from a rule of a higher floor that settings name."""

from collections.abc import Callable
from functools import cache
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string

from accounts.sessions.access_tokens import Claims


def claims_of(user_id: UUID) -> Claims | None:
    """The claims of a user's client, or None where there is no client with a licence."""
    return _rule()(user_id)


@cache
def _rule() -> Callable[[UUID], Claims | None]:
    rule: Callable[[UUID], Claims | None] = import_string(settings.ACCESS_CLAIMS)
    return rule
