"""Scheduled jobs: each runs alone, reports its result in one line and leaves an audit event."""

import logging
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from socket import gethostname
from time import monotonic
from typing import NamedTuple, Protocol

import psycopg
from django.db import Error
from django.utils import timezone

from accounts.audit import Actor, record
from config.platform.db.advisory_locks import alone
from config.platform.db.connections import database_now, release_connection
from config.platform.problems.problem import Problem

log = logging.getLogger(__name__)


class NotDone(Exception):
    """The failure of a job, with a message that may be shown."""


class Work(Protocol):
    """Does a job and returns a line about it; ``dry_run`` changes nothing and returns what would be done."""

    def __call__(self, *, by: Actor, now: datetime, dry_run: bool) -> str: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A job, named like its command; ``title`` describes it to operators."""

    name: str
    work: Work
    title: str = ""


class End(StrEnum):
    DONE = "done"
    FAILED = "failed"
    BUSY = "busy"


class Outcome(NamedTuple):
    """The end of a run, and a line about it."""

    end: End
    says: str


def clock() -> datetime:
    """The database's time, which all hosts share, or this host's time while the database is unavailable."""
    try:
        return database_now()
    except Error:
        release_connection()
        return timezone.now()


def run(job: Job, *, by: Actor, now: datetime, dry_run: bool = False) -> Outcome:
    """Runs a job unless it is already running on any host. A failure is logged and not raised."""
    try:
        with alone(f"job {job.name}") as first:
            if not first:
                return Outcome(End.BUSY, "not started, because it is already running")
            started = monotonic()
            outcome = _do(job, by=by, now=now, dry_run=dry_run)
            # The next query gets a working connection, even if the database was restarted meanwhile.
            release_connection()
            if not dry_run:
                _audit(job, outcome, seconds=monotonic() - started, by=by, now=now)
            return outcome
    except (Error, psycopg.Error) as error:
        # The lock is taken by psycopg, without Django's error classes.
        log.exception("job_failed", extra={"task": job.name})
        release_connection()
        return Outcome(End.FAILED, f"failed: {type(error).__name__}")


def _do(job: Job, *, by: Actor, now: datetime, dry_run: bool) -> Outcome:
    try:
        return Outcome(End.DONE, job.work(by=by, now=now, dry_run=dry_run))
    except Exception as error:
        # Any error: the other jobs of the night must still run. The text of an unexpected error may contain secrets.
        log.exception("job_failed", extra={"task": job.name})
        return Outcome(End.FAILED, f"failed: {_named(error)}")


def _named(error: Exception) -> str:
    if isinstance(error, NotDone):
        return str(error)
    return error.detail if isinstance(error, Problem) else type(error).__name__


def _audit(job: Job, outcome: Outcome, *, seconds: float, by: Actor, now: datetime) -> None:
    after = {"says": outcome.says, "seconds": round(seconds, 1), "host": gethostname()}
    record(
        "nightly:done" if outcome.end is End.DONE else "nightly:failed",
        job.name,
        by=by,
        now=now,
        target_id=job.name,
        after=after,
    )
