"""The rows about a person that erasure deletes, and those of the ledger, which stay without what callers said of their
calls; settings name these functions.
"""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from usage.models import Alert, Override, Stop, UsageRecord


def overrides(user_id: UUID) -> QuerySet[Any]:
    """Overrides, with operators' reasons, which may name people."""
    return Override.objects.filter(user=user_id)


def stops(user_id: UUID) -> QuerySet[Any]:
    return Stop.objects.filter(user=user_id)


def alerts(user_id: UUID) -> QuerySet[Any]:
    return Alert.objects.filter(user=user_id)


def labelled(user_id: UUID) -> QuerySet[Any]:
    return UsageRecord.objects.filter(user=user_id, labels__isnull=False)
