"""Serving of references: as the service, without its processes' background work."""

from typing import Any

from config.gunicorn import *  # noqa: F403 - gunicorn reads its settings from this module's names


def post_worker_init(worker: Any) -> None:
    """A reference has no worker of queued work to watch over."""


def worker_exit(server: Any, worker: Any) -> None:
    """A reference has nothing to settle."""
