"""The service as it is run: gunicorn with its own configuration, and the worker of queued work, as processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from django.db.models import Q
from procrastinate.contrib.django.models import ProcrastinateJob

from config.platform.edge.ratelimits.table import DEFAULTS
from tests.served import preloaded
from tests.served.database import Database
from tests.tools.children import Child, Program
from tests.tools.folders import ROOT
from tests.tools.ports import free
from tests.tools.run import healthy

HOST = "127.0.0.1"
WORKERS = 2
# Tests run a service without the worker of queued work, which it reports once it has run for five minutes.
NO_WORKER = "worker_stands_still"
# Tests that would meet the limits raise them; the limits themselves have tests of their own.
UNLIMITED = ",".join(f"{name}=100000/m" for name in DEFAULTS)


class Service:
    """A running service. ``url`` is its ``{base_url}``, ``environ`` what every process of it is given."""

    def __init__(self, child: Child, environ: Mapping[str, str]) -> None:
        self.child = child
        self.environ = environ
        self.url = f"http://{HOST}:{environ['PORT']}"
        self.port = int(environ["PORT"])

    def errors(self) -> list[str]:
        """The lines of its log that ask for somebody to mend something."""
        lines = self.child.program.log.read_text().splitlines(keepends=True)
        # The last line may be half written.
        read = [(line, json.loads(line)) for line in lines if line.endswith("\n")]
        return [
            line for line, said in read if said["level"] == "error" and said["event"] != NO_WORKER
        ]

    def workers(self) -> list[int]:
        """The process numbers of its web workers."""
        children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children")
        return [int(each) for each in children.read_text().split()]

    def listens(self) -> bool:
        """Returns whether all web workers take signals: before, one that is told to stop does not hear it."""
        # Beside them the program that serves metrics may run.
        return sum(map(_listens, self.workers())) == int(self.environ["WEB_WORKERS"])

    def manage(self, *arguments: str) -> str:
        """Runs a management command beside it, as an operator does; what it printed."""
        return manage(self.environ, *arguments)


@contextmanager
def running_service(
    folder: Path,
    environ: Mapping[str, str],
    *,
    serving: str = "config.gunicorn",
    afresh: bool = False,
) -> Iterator[Service]:
    """Starts it on a free port and stops it at the end; variables that are not given are those of this test run.

    ``afresh``: as a program of its own, where the loader of programs is to read the variables too.
    """
    port = free(HOST, 0)
    own = {
        **os.environ,
        "HOST": HOST,
        "PORT": str(port),
        "BASE_URL": f"http://{HOST}:{port}",
        "ALLOWED_HOSTS": HOST,
        "WEB_WORKERS": str(WORKERS),
        "DRAIN_SECONDS": "0",
        "RATE_LIMITS": UNLIMITED,
        "OPERATOR_SECOND_FACTOR": "off",
        **environ,
    }
    program = Program(
        name="gunicorn",
        command=[sys.executable, "-m", "gunicorn", "-c", f"python:{serving}", "config.wsgi"],
        log=folder / f"web-{port}.log",
        environ=own,
        # Orphaned, its master ends its workers at once.
        orphaned_by=signal.SIGQUIT,
    )
    with ExitStack() as stack:
        child = program.start() if afresh else preloaded.start(program)
        stack.callback(child.stop)
        child.wait_until(partial(healthy, HOST, port), seconds=60)
        service = Service(child, own)
        child.wait_until(service.listens, seconds=60)
        yield service


def _listens(worker: int) -> bool:
    """A worker catches SIGABRT, the last signal that it prepares for; the master, which it is forked from, does not."""
    try:
        lines = Path(f"/proc/{worker}/status").read_text().splitlines()
    except FileNotFoundError:
        return False
    (caught,) = (line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) & 1 << signal.SIGABRT - 1)


@contextmanager
def working_off(service: Service) -> Iterator[Child]:
    """The worker of queued work runs beside the service."""
    log = service.child.program.log.with_name(f"worker-{service.port}.log")
    command = [sys.executable, "manage.py", "work"]
    program = Program(name="worker", command=command, log=log, environ=service.environ)
    with ExitStack() as stack:
        child = program.start()
        stack.callback(child.stop)
        try:
            yield child
        except BaseException as error:
            # Mostly it is the worker that did not do what was waited for.
            error.add_note(child.last_words(40))
            raise
        assert child.ended is None, child.obituary()


def is_worked_off(database: Database) -> bool:
    """Returns whether nothing is queued for now or being done, nor waits to be tried again."""
    open_jobs = ProcrastinateJob.objects.filter(status__in=("todo", "doing"))
    # Other tests leave mails that are to be sent in an hour.
    later = Q(status="todo", attempts=0, scheduled_at__gt=datetime.now(UTC))
    with database.rows():
        return not open_jobs.exclude(later).exists()


def manage(environ: Mapping[str, str], *arguments: str) -> str:
    """Returns the output of a management command, which must succeed."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        # The longest of them waits 40 s for a key to sign.
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
