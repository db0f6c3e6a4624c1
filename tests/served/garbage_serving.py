"""The service's own gunicorn configuration without collections but one at each /livez, whose finds it writes down."""

from config.gunicorn import *  # noqa: F403 - it patches first, and every name of it is a setting of gunicorn's

import gc  # isort: skip
import os  # isort: skip
from pathlib import Path  # isort: skip
from typing import Any  # isort: skip


def post_worker_init(worker: Any) -> None:
    gc.disable()


def post_request(worker: Any, request: Any, environ: dict[str, Any], response: Any) -> None:
    if environ["PATH_INFO"] == "/livez":
        with Path(os.environ["GARBAGE"]).open("a") as written:
            written.write(f"{gc.collect()}\n")
