"""The service's own gunicorn configuration with a watch that does not wait for minutes."""

from config.gunicorn import *  # noqa: F403 - it patches first, and every name of it is a setting of gunicorn's

from datetime import timedelta  # isort: skip
from typing import Any  # isort: skip

from django.utils.module_loading import import_string  # isort: skip

# A worker beats every ten seconds.
STILL_SECONDS = 12


def post_worker_init(worker: Any) -> None:
    watch = import_string("config.composition.attention.watch.start").__globals__
    worker = import_string("config.composition.attention.operation.worker").__globals__
    watch["STILL_AFTER"] = worker["STILL_AFTER"] = timedelta(seconds=STILL_SECONDS)
    watch["EVERY_SECONDS"] = 0.5
    watch["start"]()
