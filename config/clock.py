"""Time within one act: what takes long is over later than it began."""

from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic


def clock_from(now: datetime) -> Callable[[], datetime]:
    """A clock that shows ``now`` and goes on from there, whatever becomes of the host's own."""
    began = monotonic()
    return lambda: now + timedelta(seconds=monotonic() - began)
