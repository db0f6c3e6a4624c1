"""A day to which the modules ``attention`` beside each app's tests add rows that need attention.

Each has ``bad_day`` and may have ``worst_day``, which adds the kinds named by ``QUIET``.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from accounts.audit import Actor
from tests.console.conftest import World

HOUR = timedelta(hours=1)


class Day(NamedTuple):
    world: World
    by: Actor
    now: datetime
    settings: Any
