"""The worker: does what is queued until it is told to stop, and outlives restarts of its database."""

import asyncio
import logging
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from procrastinate.contrib.django import app
from procrastinate.contrib.django.django_connector import DjangoConnector
from procrastinate.exceptions import ConnectorException
from psycopg import OperationalError

from config import logs
from config.queue import rescue_jobs

log = logging.getLogger(__name__)

# Told to stop, a job has this long to end by itself; after that it is another worker's.
GRACE_SECONDS = 30.0
PAUSE_SECONDS = 2.0


class Command(BaseCommand):
    help = (
        "Do queued work until stopped: mail, settling abandoned calls, and what else tasks ask for."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--concurrency", type=int, default=4, help="jobs at a time")

    def handle(self, *args: Any, concurrency: int, **options: Any) -> None:
        logs.take_over()
        asyncio.run(_work(concurrency))


async def _work(concurrency: int) -> None:
    while True:
        try:
            await _work_while_connected(concurrency)
        except (ConnectorException, OperationalError):
            # The library's worker ends with its connection; what it was doing is rescued by the next.
            log.warning("worker_lost_database", exc_info=True)
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return


async def _work_while_connected(concurrency: int) -> None:
    connector = app.connector
    assert isinstance(connector, DjangoConnector)
    with app.replace_connector(connector.get_worker_connector()) as worker:
        async with worker.open_async():
            # Now, and every minute from then on: a task in config/tasks.py does the same.
            await rescue_jobs(worker.job_manager)
            await worker.run_worker_async(
                concurrency=concurrency, shutdown_graceful_timeout=GRACE_SECONDS
            )
