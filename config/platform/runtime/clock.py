"""Elapsed time within one operation, and instants that Python can represent."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic

from django.db.models import Q

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def clock_from(now: datetime) -> Callable[[], datetime]:
    """Returns a clock that starts at ``now`` and ignores changes of the host's clock."""
    began = monotonic()
    return lambda: now + timedelta(seconds=monotonic() - began)


def is_readable(*columns: str) -> Q:
    """Returns whether Python can represent the instants of these columns, unlike PostgreSQL's infinity."""
    return Q(*(Q((f"{each}__gte", FIRST), (f"{each}__lte", LAST)) for each in columns))
