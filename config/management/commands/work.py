"""The worker: runs queued jobs until it is stopped, and survives restarts of its database.

A job may never end, for instance because a server trickles bytes. It must not block the others, and a thread cannot be
killed: the process exits instead, and its supervisor starts another.
"""

import asyncio
import logging
import os
import signal
from argparse import ArgumentTypeError
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import Error
from django.utils import timezone
from procrastinate import App, PsycopgConnector
from procrastinate.contrib.django import app, connector_params
from procrastinate.exceptions import ConnectorException, TaskNotFound
from procrastinate.job_context import JobContext
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from procrastinate.middleware import SyncCallNext
from procrastinate.worker import Worker
from psycopg import OperationalError

from accounts import forwarding
from accounts.audit import Actor, record
from config.platform.db.connections import release_connection
from config.platform.db.encoding import refuse_other_encodings
from config.platform.db.sessions import with_session
from config.platform.jobs import queue
from config.platform.observability import logs
from config.platform.observability.scrubbing import scrubbed
from config.platform.runtime import serving

log = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0
# No job takes minutes, except the night: timeouts bound each silence of the servers that jobs wait for.
LONGEST_SECONDS = 900
LOOK_SECONDS = 1.0
# The library may need this long beyond the grace period to stop.
LEAVING_SECONDS = 2.0
LONGEST_CAUSE = 300
# Shorter texts of a job's arguments reveal nothing, and occur in every message.
SHORTEST_SECRET = 4
# Seconds between attempts to store how a job ended. If the database is unavailable for longer, the library's worker
# ends, and the next one rescues its jobs.
END_WAITS = (0.1, 1.0, 2.0, 4.0, 8.0)


class Command(BaseCommand):
    help = "Run queued jobs until stopped: mail, settling abandoned calls and other tasks."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--concurrency", type=_at_least_one, default=4, help="jobs at a time")
        parser.add_argument(
            "--longest",
            type=_at_least_one,
            default=LONGEST_SECONDS,
            metavar="SECONDS",
            help=f"end the worker if a job takes longer; its supervisor restarts it (default: {LONGEST_SECONDS})",
        )

    def handle(self, *args: Any, concurrency: int, longest: int, **options: Any) -> None:
        refuse_other_encodings()
        logs.take_over()
        forwarding.start()
        serving.run(serving.worker_started)
        if concurrency == 1 and settings.NIGHTLY_AT is not None:
            # The night occupies a slot for up to hours, and settlements must not wait for it.
            log.warning("worker_widened_for_night")
            concurrency = 2
        try:
            asyncio.run(_work(concurrency, longest))
        finally:
            serving.run(serving.exits)


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError("must be a number from 1 on")
    return int(text)


async def _work(concurrency: int, longest: int) -> None:
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    while not stop.is_set():
        try:
            await _work_while_connected(concurrency, longest, stop)
        except (ConnectorException, OperationalError):
            # The library's worker ends with its connection, and the next one rescues its jobs.
            log.warning("worker_lost_database", exc_info=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), PAUSE_SECONDS)


async def _work_while_connected(concurrency: int, longest: int, stop: asyncio.Event) -> None:
    connector = PsycopgConnector(kwargs=with_session(connector_params()))
    with app.replace_connector(connector) as connected:
        async with connected.open_async():
            # A task in config/platform/jobs/tasks.py does the same every minute from now on.
            await queue.rescue_jobs(connected.job_manager)
            connected.job_manager = _PersistentJobManager(connected.connector)
            await _run(connected, concurrency, longest, stop)


async def _run(connected: App, concurrency: int, longest: int, stop: asyncio.Event) -> None:
    """Works until stopped, until a job hangs or until the library's worker fails."""
    running_jobs = _RunningJobs()
    connected.perform_import_paths()  # type: ignore[no-untyped-call]
    worker = Worker(
        connected,
        concurrency=concurrency,
        shutdown_graceful_timeout=queue.GRACE_SECONDS,
        stalled_worker_timeout=queue.DEAD_AFTER_SECONDS,
        install_signal_handlers=False,
        task_middleware=[running_jobs, *serving.around_jobs],
    )
    running = asyncio.create_task(worker.run())  # type: ignore[no-untyped-call]
    reasons = {
        asyncio.create_task(stop.wait()),
        asyncio.create_task(running_jobs.until_one_exceeds(longest)),
    }
    await asyncio.wait({running, *reasons}, return_when=asyncio.FIRST_COMPLETED)
    for each in reasons:
        each.cancel()
    if not running.done():
        worker.stop()  # type: ignore[no-untyped-call]
        ended, _ = await asyncio.wait({running}, timeout=queue.GRACE_SECONDS + LEAVING_SECONDS)
        if not ended:
            await _leave(connected, worker, status=0 if stop.is_set() else 1)
    await running


class _PersistentJobManager(JobManager):
    """Retries storing the end of a job, and leaves jobs of unknown tasks to another worker.

    The library's worker tries once, and the job would count as running for as long as this process lives. A job whose
    task it does not know fails there for good; but during an upgrade the next release has queued it.
    """

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:  # noqa: FBT001 - the library's
        if status == Status.FAILED and job.task_name not in app.tasks:
            later = queue.BACKOFF.get_retry_decision(exception=TaskNotFound(), job=job)
            if later is not None:
                await self.retry_job(job, retry_at=later.retry_at)
                return
        await _written(super().finish_job, job, status, delete_job)

    async def retry_job(self, *args: Any, **end: Any) -> None:
        await _written(super().retry_job, *args, **end)


async def _written(write: Callable[..., Awaitable[None]], *args: Any, **end: Any) -> None:
    for wait in END_WAITS:
        try:
            await write(*args, **end)
        except ConnectorException:
            log.warning("job_end_not_written", exc_info=True)
            await asyncio.sleep(wait)
        else:
            return
    await write(*args, **end)


def note_failure(job: Job, error: Exception, *, now: datetime) -> None:
    """Audits a job's permanent failure: the class of the error, and its message without the job's arguments."""
    message = str(error)
    # The longest first, because a text may contain another.
    for value in sorted(_texts(job.task_kwargs), key=len, reverse=True):
        message = message.replace(value, "[…]")
    cause = f"{type(error).__name__}: {scrubbed(message)[:LONGEST_CAUSE]}".removesuffix(": ")
    by = Actor(name="the worker")
    # The job's connection may be broken.
    release_connection()
    try:
        record(
            "job:failed", job.task_name, by=by, now=now, target_id=job.id, after={"cause": cause}
        )
    except Error:
        log.exception("job_failure_not_noted")


def _texts(value: Any) -> Iterator[str]:
    """Yields the texts in a job's arguments, and their words."""
    if isinstance(value, str):
        yield from (each for each in {value, *value.split()} if len(each) >= SHORTEST_SECRET)
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _texts(each)


class _RunningJobs:
    """Task middleware that keeps a list of the running jobs."""

    def __init__(self) -> None:
        # Not keyed by job: one that was rescued from this worker may return to it while it still runs here.
        self._begun: dict[object, tuple[float, str]] = {}

    def __call__(self, do: SyncCallNext, context: JobContext, worker: object) -> Any:
        this = object()
        self._begun[this] = monotonic(), context.job.task_name
        try:
            return do()
        except Exception as error:
            if context.task.get_retry_exception(error, context.job) is None:
                note_failure(context.job, error, now=timezone.now())
            raise
        finally:
            del self._begun[this]
            # An idle thread keeps no connection, and borrows a working one for its next job.
            release_connection()

    async def until_one_exceeds(self, seconds: float) -> None:
        """Waits until a job has run for longer than ``seconds``; nightly jobs may run for hours."""
        while True:
            for began, task in tuple(self._begun.values()):
                most = max(seconds, queue.LONGEST_NIGHT_SECONDS) if task == queue.NIGHT else seconds
                if monotonic() - began > most:
                    log.error("worker_job_hangs", extra={"task": task})
                    return
            await asyncio.sleep(LOOK_SECONDS)


async def _leave(connected: App, worker: Worker, *, status: int) -> None:
    """Exits the process with its running jobs: a job in a thread cannot be killed otherwise.

    Unregisters the worker first, so that the next one rescues these jobs at once.
    """
    log.warning("worker_left_jobs")
    if worker.worker_id is not None:
        with suppress(ConnectorException, OperationalError, TimeoutError):
            sign_off = connected.job_manager.unregister_worker(worker.worker_id)
            await asyncio.wait_for(sign_off, LEAVING_SECONDS)
    os._exit(status)
