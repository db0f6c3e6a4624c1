"""Finds items that need attention, every minute and in every web process, and notifies operators of alerts.

Web processes watch because a stopped worker cannot report itself, and one whose clock is ahead runs no periodic job.
"""

import logging
import random
import threading
from time import monotonic

from config.composition.attention import listing
from config.composition.attention.notifying import notify
from config.composition.attention.operation import STILL_AFTER
from config.platform.db.connections import database_now, release_connection

log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0


def start() -> threading.Thread:
    """Updates the sidebar's counts every minute, and notifies once a worker has had time to start."""
    thread = threading.Thread(target=_look_for_ever, name="watch", daemon=True)
    thread.start()
    return thread


def _look_for_ever() -> None:
    pause, began = threading.Event(), monotonic()
    while True:
        try:
            # The database's clock, so that a wrong clock of this host raises no alert.
            now = database_now()
            listing.look(now=now)
            if monotonic() - began > STILL_AFTER.total_seconds():
                notify(now=now)
        except Exception:
            # The next minute retries, for instance once the database answers.
            log.warning("watch_failed", exc_info=True)
        release_connection()
        # Spreads processes that started together.
        pause.wait(EVERY_SECONDS * random.uniform(0.8, 1.2))  # nosec B311 # noqa: S311 - no secret
