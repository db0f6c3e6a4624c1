"""What usage holds of a person beside the ledger, and what goes when they are erased; settings name it."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from usage.models import Alert, Override, Stop


def overrides(user_id: UUID) -> QuerySet[Any]:
    """With the reasons that operators wrote, which may name people."""
    return Override.objects.filter(user=user_id)


def stops(user_id: UUID) -> QuerySet[Any]:
    return Stop.objects.filter(user=user_id)


def alerts(user_id: UUID) -> QuerySet[Any]:
    return Alert.objects.filter(user=user_id)
