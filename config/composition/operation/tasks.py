"""The worker's task of the night."""

import logging

from django.conf import settings

from accounts.audit import Actor
from config.composition.operation import nightly
from config.platform.db.connections import database_now
from config.platform.jobs.queue import NIGHT, periodic

log = logging.getLogger(__name__)


@periodic("* * * * *", name=NIGHT, title="Run the nightly jobs", queue="night")
def run_night(timestamp: int) -> None:
    """Runs the rest of the nightly jobs, if any, every minute from ``NIGHTLY_AT`` on."""
    if settings.NIGHTLY_AT is None:
        return
    by = Actor(name="the worker, every night")
    for job, outcome in nightly.run_due(at=settings.NIGHTLY_AT, by=by, now=database_now()):
        log.info("night_job_ended", extra={"task": job.name, "outcome": outcome.end.value})
