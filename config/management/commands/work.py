"""The worker: does what is queued until it is told to stop, and outlives restarts of its database.

A job that does not end, as where a server it talks to sends a byte now and then for ever, must not keep the others
waiting: a thread cannot be ended by anybody, so the process ends instead, and whoever keeps it running starts another.
"""

import asyncio
import logging
import os
import signal
from argparse import ArgumentTypeError
from contextlib import suppress
from time import monotonic
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from procrastinate import App
from procrastinate.contrib.django import app
from procrastinate.contrib.django.django_connector import DjangoConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.job_context import JobContext
from procrastinate.middleware import SyncCallNext
from procrastinate.worker import Worker
from psycopg import OperationalError

from config.db.connections import release_connection
from config.jobs.queue import DEAD_AFTER_SECONDS, GRACE_SECONDS, rescue_jobs
from config.observability import logs

log = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0
# No job takes minutes: what they wait for has limits of its own, which hold for each silence of a server and seldom for
# all of them together.
LONGEST_SECONDS = 900
LOOK_SECONDS = 1.0
# What the library may need beyond the grace to say that it is over.
LEAVING_SECONDS = 2.0
# Seconds between the attempts to write down how a job ended. Where the database is away for longer, the library's
# worker ends, and what it was doing is rescued.
END_WAITS = (0.1, 1.0, 2.0, 4.0, 8.0)


class Command(BaseCommand):
    help = (
        "Do queued work until stopped: mail, settling abandoned calls, and what else tasks ask for."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--concurrency", type=_at_least_one, default=4, help="jobs at a time")
        parser.add_argument(
            "--longest",
            type=_at_least_one,
            default=LONGEST_SECONDS,
            metavar="SECONDS",
            help=f"how long a job may take before the worker ends, to be started anew; {LONGEST_SECONDS} if not given",
        )

    def handle(self, *args: Any, concurrency: int, longest: int, **options: Any) -> None:
        logs.take_over()
        asyncio.run(_work(concurrency, longest))


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError("must be a number from 1 on")
    return int(text)


async def _work(concurrency: int, longest: int) -> None:
    told = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, told.set)
    while not told.is_set():
        try:
            await _work_while_connected(concurrency, longest, told)
        except (ConnectorException, OperationalError):
            # The library's worker ends with its connection; what it was doing is rescued by the next.
            log.warning("worker_lost_database", exc_info=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), PAUSE_SECONDS)


async def _work_while_connected(concurrency: int, longest: int, told: asyncio.Event) -> None:
    connector = app.connector
    assert isinstance(connector, DjangoConnector)
    with app.replace_connector(connector.get_worker_connector()) as connected:
        async with connected.open_async():
            # Now, and every minute from then on: a task in config/jobs/tasks.py does the same.
            await rescue_jobs(connected.job_manager)
            await _run(connected, concurrency, longest, told)


async def _run(connected: App, concurrency: int, longest: int, told: asyncio.Event) -> None:
    """Works until told to stop, a job hangs, or something of the library's worker fails."""
    under_way = _UnderWay()
    connected.perform_import_paths()  # type: ignore[no-untyped-call]
    worker = _Worker(
        connected,
        concurrency=concurrency,
        shutdown_graceful_timeout=GRACE_SECONDS,
        stalled_worker_timeout=DEAD_AFTER_SECONDS,
        install_signal_handlers=False,
        task_middleware=[under_way],
    )
    running = asyncio.create_task(worker.run())  # type: ignore[no-untyped-call]
    reasons = {
        asyncio.create_task(told.wait()),
        asyncio.create_task(under_way.one_takes_longer(longest)),
    }
    await asyncio.wait({running, *reasons}, return_when=asyncio.FIRST_COMPLETED)
    for each in reasons:
        each.cancel()
    if not running.done():
        worker.stop()  # type: ignore[no-untyped-call]
        ended, _ = await asyncio.wait({running}, timeout=GRACE_SECONDS + LEAVING_SECONDS)
        if not ended:
            await _leave(connected, worker, status=0 if told.is_set() else 1)
    await running


class _Worker(Worker):
    """Writes down again how a job ended where that has failed.

    The library tries once and fails unheard, and the job would count as being done for as long as this process lives.
    """

    async def _persist_job_status(self, *args: Any, **end: Any) -> None:
        for wait in END_WAITS:
            try:
                await super()._persist_job_status(*args, **end)
            except ConnectorException:
                log.warning("job_end_not_written", exc_info=True)
                await asyncio.sleep(wait)
            else:
                return
        await super()._persist_job_status(*args, **end)


class _UnderWay:
    """The jobs that threads are doing: a middleware of tasks."""

    def __init__(self) -> None:
        # Not by the job: one that was rescued from this worker may come back to it while it is still done.
        self._begun: dict[object, tuple[float, str]] = {}

    def __call__(self, do: SyncCallNext, context: JobContext, worker: object) -> Any:
        this = object()
        self._begun[this] = monotonic(), context.job.task_name
        try:
            return do()
        finally:
            del self._begun[this]
            # A thread that waits for work holds no connection, and finds one that works when there is some.
            release_connection()

    async def one_takes_longer(self, seconds: float) -> None:
        """Waits until one has taken so long."""
        while True:
            for began, task in tuple(self._begun.values()):
                if monotonic() - began > seconds:
                    log.error("worker_job_hangs", extra={"task": task})
                    return
            await asyncio.sleep(LOOK_SECONDS)


async def _leave(connected: App, worker: Worker, *, status: int) -> None:
    """Ends this process with what it is doing: a job in a thread cannot be made to end otherwise.

    Signed off, so that the next worker takes such jobs up at once.
    """
    log.warning("worker_left_jobs")
    if worker.worker_id is not None:
        with suppress(ConnectorException, OperationalError, TimeoutError):
            sign_off = connected.job_manager.unregister_worker(worker.worker_id)
            await asyncio.wait_for(sign_off, LEAVING_SECONDS)
    os._exit(status)
