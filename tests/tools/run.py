"""`make run`: everything in order, from an empty folder to a service that answers, until it is told to stop."""

import http.client
import os
import signal
import sys
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from tests.tools import environment, ports
from tests.tools.announcement import announcement
from tests.tools.children import Child, Program
from tests.tools.embedded import Embedded, write_environment
from tests.tools.folders import claim, held, sockets_of
from tests.tools.leftovers import end_leftovers, marked
from tests.tools.progress import Progress
from tests.tools.supervision import Keeper, watch
from tests.tools.variables import reachable


def run(folder: Path) -> NoReturn:
    """Starts everything and watches over it. Ends by an exception only: Unready, or what a signal raises."""
    progress = Progress()
    claim(folder)
    with held(folder) as hold:
        end_leftovers(folder)
        environment.read_files(os.environ, "HOST", "PORT", "BASE_URL", "CDN_URL")
        host, port = ports.chosen(os.environ)
        try:
            with ExitStack() as running:
                try:
                    Start(folder, progress, running).everything(host, port)
                finally:
                    hold.note("stopping")
                    progress.say("Stopping; Ctrl-C ends the waiting")
        finally:
            progress.say("Everything is stopped")


class Start:
    """One start: what it brings up is stopped in the opposite order when ``running`` closes."""

    def __init__(self, folder: Path, progress: Progress, running: ExitStack) -> None:
        self.folder = folder
        self.logs = claim(folder / "log")
        self.say = progress.say
        self.running = running
        self.environ: dict[str, str] = {}
        self.vital: list[Child] = []
        self.kept: list[Keeper] = []

    def everything(self, host: str, port: int) -> NoReturn:
        """Starts all of it in order, says where it is, and watches over it."""
        self.say(f"Starting in {self.folder.parent}")
        embedded = self._environment(host, port)
        self._servers(embedded)
        demo = str(self.folder / "demo.json")
        self._step("migrate", "migrate", "--no-input")
        self.say("Database is up to date")
        self._step("seed", "seed_demo", "--output", demo)
        self.say("Demo data is there")
        if embedded.provider_port is not None:
            self._provider(embedded.provider_port)
        if embedded.cdn_port is not None:
            self._cdn(embedded.cdn_port)
        self._keep(self._program("worker", [sys.executable, "manage.py", "work"]))
        self.say("Worker is started")
        self._web(reachable(host), port)
        where = announcement(self.folder, self.environ, own_database=embedded.database is not None)
        print(where, flush=True)
        watch(self.vital, self.kept)

    def _environment(self, host: str, port: int) -> Embedded:
        """Writes the environment file, and says what has to be started."""
        for log in self.logs.glob("*.log"):
            log.unlink()
        claim(self.folder / "storage")
        claim(self.folder / "mail")
        sockets = self.running.enter_context(sockets_of(self.folder))
        embedded, values = write_environment(
            self.folder, host=host, port=port, sockets=sockets, environ=os.environ
        )
        under = environment.missing(values, os.environ)
        # A port of 0 has become a number by now.
        own = {"HOST": host, "PORT": str(port), "PYTHONUNBUFFERED": "1"}
        self.environ = marked({**os.environ, **under, **own}, self.folder)
        self.say("Environment is written")
        return embedded

    def _servers(self, embedded: Embedded) -> None:
        if embedded.database is not None:
            self._vital(embedded.database.start())
            self.say("PostgreSQL answers")
        if embedded.cache is not None:
            # Without it the service goes on by itself, and so does the run.
            keeper = self._keep(embedded.cache.program())
            keeper.child.wait_until(embedded.cache.answers, seconds=30)
            self.say("Redis answers")
        elif not embedded.cache_given:
            self.say(
                "No Redis: there is no package of it for this Python, so each process counts for itself"
            )

    def _step(self, name: str, *arguments: str) -> None:
        """A management command that has to succeed before anything else is started."""
        child = self._program(name, [sys.executable, "manage.py", *arguments]).start()
        with ExitStack() as step:
            step.callback(child.stop)
            child.wait_for_success()

    def _provider(self, port: int) -> None:
        where = ["--host", "127.0.0.1", "--port", str(port)]
        command = [sys.executable, "-m", "tests.standins.provider", *where]
        keeper = self._keep(self._program("provider", command))
        log = keeper.child.program.log
        keeper.child.wait_until(lambda: b"listening on" in log.read_bytes(), seconds=30)
        self.say("Stand-in model provider answers")

    def _cdn(self, port: int) -> None:
        """Serves what is published, as a CDN would."""
        where = ["--port", str(port), str(self.folder / "storage")]
        command = [sys.executable, "-m", "tests.standins.cdn", *where]
        keeper = self._keep(self._program("cdn", command))
        log = keeper.child.program.log
        keeper.child.wait_until(lambda: b"listening on" in log.read_bytes(), seconds=30)
        self.say("Stand-in CDN answers")

    def _web(self, host: str, port: int) -> None:
        serving = ["--no-control-socket", "-c", "python:config.serving", "config.wsgi:application"]
        # Orphaned, its master ends its workers at once and frees the port.
        program = self._program("web", [sys.executable, "-m", "gunicorn", *serving], signal.SIGQUIT)
        child = program.start()
        self._vital(child)
        child.wait_until(partial(healthy, host, port), seconds=60)
        self.say("Service answers")

    def _vital(self, child: Child) -> None:
        self.running.callback(child.stop)
        self.vital.append(child)

    def _keep(self, program: Program) -> Keeper:
        keeper = Keeper(program, self.say)
        self.running.callback(keeper.stop)
        self.kept.append(keeper)
        return keeper

    def _program(
        self, name: str, command: list[str], orphaned_by: signal.Signals = signal.SIGKILL
    ) -> Program:
        log = self.logs / f"{name}.log"
        return Program(
            name=name, command=command, log=log, environ=self.environ, orphaned_by=orphaned_by
        )


def healthy(host: str, port: int) -> bool:
    """Whether ``/healthz`` answers 200 there; host as it stands in an address."""
    with (
        closing(http.client.HTTPConnection(f"{host}:{port}", timeout=5)) as connection,
        suppress(OSError, http.client.HTTPException),
    ):
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    return False
