"""The worker's night, and its notifications of operators."""

import logging

from django.conf import settings

from accounts.audit import Actor
from config.composition.attention.notifying import notify
from config.composition.operation import nightly
from config.platform.db.connections import database_now
from config.platform.jobs.queue import NIGHT, URGENT, periodic

log = logging.getLogger(__name__)


@periodic("* * * * *", name=NIGHT, queue="night")
def run_night(timestamp: int) -> None:
    """Every minute from ``NIGHTLY_AT`` on: runs the rest of the nightly jobs, if any."""
    if settings.NIGHTLY_AT is None:
        return
    by = Actor(name="the worker, every night")
    for job, outcome in nightly.run_due(at=settings.NIGHTLY_AT, by=by, now=database_now()):
        log.info("night_job_ended", extra={"task": job.name, "outcome": outcome.end.value})


@periodic("* * * * *", name="attention.tell", queue="attention", priority=URGENT)
def notify_operators(timestamp: int) -> None:
    """Every minute: notifies operators of alerts that have begun or ended."""
    notify(now=database_now())
