"""Jobs by the clock: each runs alone, says in a line what it did, and leaves an audit event that operators see."""

import logging
from collections.abc import Iterable
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
from config.api.problems import Problem
from config.db.advisory_locks import alone
from config.db.connections import database_now, release_connection

log = logging.getLogger(__name__)


class NotDone(Exception):
    """A job could not do its work, and says why in words that may be shown."""


class Work(Protocol):
    """Does a job and says in one line what it did, or with ``dry_run`` what it would do, which changes nothing."""

    def __call__(self, *, by: Actor, now: datetime, dry_run: bool) -> str: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A job by the name of its command."""

    name: str
    work: Work


class End(StrEnum):
    DONE = "done"
    FAILED = "failed"
    BUSY = "busy"


class Outcome(NamedTuple):
    """How a run ended, and a line about it."""

    end: End
    says: str


def clock() -> datetime:
    """The time that all hosts share; where the database is away, in which nothing gets done, this host's."""
    try:
        return database_now()
    except Error:
        release_connection()
        return timezone.now()


def run(job: Job, *, by: Actor, now: datetime, dry_run: bool = False) -> Outcome:
    """Runs a job unless it runs already, somewhere. A job that fails is logged and does not raise."""
    try:
        with alone(f"job {job.name}") as first:
            if not first:
                return Outcome(End.BUSY, "not begun, because it runs already")
            started = monotonic()
            outcome = _attempt(job, by=by, now=now, dry_run=dry_run)
            # The next question finds a connection that works, also where the database was restarted in between.
            release_connection()
            if not dry_run:
                _note(job, outcome, seconds=monotonic() - started, by=by, now=now)
            return outcome
    except (Error, psycopg.Error) as error:
        # The lock is asked for without Django, whose errors are others.
        log.exception("job_failed", extra={"task": job.name})
        release_connection()
        return Outcome(End.FAILED, f"failed: {type(error).__name__}")


def _attempt(job: Job, *, by: Actor, now: datetime, dry_run: bool) -> Outcome:
    try:
        return Outcome(End.DONE, job.work(by=by, now=now, dry_run=dry_run))
    except Exception as error:
        # Of any kind: the other jobs of the night must still run. The words of an error may hold anything.
        log.exception("job_failed", extra={"task": job.name})
        return Outcome(End.FAILED, f"failed: {_named(error)}")


def _named(error: Exception) -> str:
    if isinstance(error, NotDone):
        return str(error)
    return error.detail if isinstance(error, Problem) else type(error).__name__


def _note(job: Job, outcome: Outcome, *, seconds: float, by: Actor, now: datetime) -> None:
    record(
        "nightly:done" if outcome.end is End.DONE else "nightly:failed",
        by=by,
        now=now,
        target=job.name,
        target_id=job.name,
        after={"says": outcome.says, "seconds": round(seconds, 1), "host": gethostname()},
    )


def failed(outcomes: Iterable[Outcome]) -> bool:
    """Whether any of them did."""
    return any(outcome.end is End.FAILED for outcome in outcomes)
