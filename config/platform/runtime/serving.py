"""Hooks of a serving process: composition registers them, and gunicorn's worker calls them.

In a process without apps, such as a reference of the bench, they are empty.
"""

from collections.abc import Callable
from typing import Any

Hook = Callable[[], object]

# Called once the process serves.
started: list[Hook] = []
# Called once the service serves, in only one of its processes.
first_started: list[Hook] = []
# Called before the master kills the process; running calls must end.
grace_over: list[Hook] = []
# Called once the worker of queued jobs runs.
worker_started: list[Hook] = []
# Called last, before the process exits.
exits: list[Hook] = []
# Wrap the WSGI application, and each job as middleware of its library.
around_requests: list[Callable[[Any], Any]] = []
around_jobs: list[Callable[..., Any]] = []


def run(hooks: list[Hook]) -> None:
    """Calls hooks in the order of registration."""
    for hook in hooks:
        hook()
