"""What a token says of plan and entitlements comes from a higher floor, which settings name."""

from collections.abc import Callable
from functools import cache
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string

from accounts.access_tokens import Claims


def claims_of(user_id: UUID) -> Claims | None:
    """The claims of a user's client, or None where there is no client with a licence."""
    return _source()(user_id)


@cache
def _source() -> Callable[[UUID], Claims | None]:
    source: Callable[[UUID], Claims | None] = import_string(settings.ACCESS_CLAIMS)
    return source
