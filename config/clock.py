"""Time within one act, where what takes long is over later than it began, and instants that can be read at all."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic

from django.db.models import Q

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def clock_from(now: datetime) -> Callable[[], datetime]:
    """A clock that shows ``now`` and goes on from there, whatever becomes of the host's own."""
    began = monotonic()
    return lambda: now + timedelta(seconds=monotonic() - began)


def is_readable(*columns: str) -> Q:
    """Whether the instants of these columns, where there are any, are ones that Python has: infinity is none."""
    return Q(*(Q((f"{each}__gte", FIRST), (f"{each}__lte", LAST)) for each in columns))
