"""The service's own gunicorn configuration, whose workers write down again and again how many greenlets they have."""

from config.gunicorn import *  # noqa: F403 - it patches first, and every name of it is a setting of gunicorn's

import gc  # isort: skip
import logging  # isort: skip
import os  # isort: skip
from pathlib import Path  # isort: skip
from time import sleep  # isort: skip
from typing import Any  # isort: skip

from gevent import Greenlet, spawn  # isort: skip

from config import gunicorn as own  # isort: skip

EVERY_SECONDS = 5.0

log = logging.getLogger(__name__)


def post_worker_init(worker: Any) -> None:
    own.post_worker_init(worker)
    spawn(_count)


def _count() -> None:
    while True:
        try:
            Path(os.environ["GREENLETS"], str(os.getpid())).write_text(str(_living()))
        except Exception:
            # The next look may do better; the log says what this one met.
            log.exception("greenlets_not_counted")
        sleep(EVERY_SECONDS)


def _living() -> int:
    # By its own type: to ask a weak reference for its class fails where what it meant is gone.
    found = [each for each in gc.get_objects() if issubclass(type(each), Greenlet)]
    return sum(not each.dead for each in found)
