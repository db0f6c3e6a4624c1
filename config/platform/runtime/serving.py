"""Hooks of a serving process: composition registers them, and gunicorn's worker calls them.

A process without apps, as a reference of the bench, does nothing.
"""

from collections.abc import Callable
from typing import Any

Hook = Callable[[], object]

# Once the process serves.
started: list[Hook] = []
# Once the service serves, in one of its processes alone.
first_started: list[Hook] = []
# The master kills the process soon; running calls have to end.
grace_over: list[Hook] = []
# Once the worker of queued jobs works.
worker_started: list[Hook] = []
# The last before the process exits.
exits: list[Hook] = []
# Around the WSGI application, and around each job as middleware of its library.
around_requests: list[Callable[[Any], Any]] = []
around_jobs: list[Callable[..., Any]] = []


def run(hooks: list[Hook]) -> None:
    """Calls them in the order in which they were registered."""
    for hook in hooks:
        hook()
