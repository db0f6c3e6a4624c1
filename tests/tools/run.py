"""`make run`: starts all in order until a signal stops it. The kernel ends orphans, which honcho leaves running."""

import http.client
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from tests.tools import Unready, beforehand, demo_app, environment, ports, redis
from tests.tools.announcement import announcement
from tests.tools.children import Child, Program
from tests.tools.folders import claim, held, sockets_of
from tests.tools.postgres import Postgres
from tests.tools.stops import pause
from tests.tools.variables import address, for_run, reachable

RESTART_SECONDS = 3.0


def run(folder: Path) -> NoReturn:
    """Starts everything and watches over it. Ends by an exception only: Unready, or Stopped for a signal."""
    claim(folder)
    with held(folder) as hold:
        beforehand.read_files(os.environ, "HOST", "PORT", *environment.KEPT_ADDRESSES)
        host, port = ports.chosen(os.environ)
        hold.note(f"running {os.environ.get('BASE_URL') or address(host, port)}")
        running = ExitStack()
        start = Start(folder, running, host, port)
        try:
            with running:
                try:
                    start.everything()
                finally:
                    hold.note("stopping")
                    start.say("Stopping; Ctrl-C ends the waiting")
        finally:
            start.say("Everything is stopped")


def ensure_environment(folder: Path, environ: Mapping[str, str]) -> None:
    """Writes the file where there is none, so that manage.py knows where `make run` will bring its servers."""
    claim(folder)
    host, port = ports.named(environ)
    # A process that holds the folder is writing it.
    with suppress(Unready), held(folder), sockets_of(folder) as sockets:
        if not (folder / "env").exists():
            Servers(folder, sockets, environ).write(host, port, environ)


class Servers:
    """The servers that a run brings itself: those whose addresses the process environment does not give."""

    def __init__(self, folder: Path, sockets: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._before = environment.read(folder / "env")
        logs = claim(folder / "log")
        self.database = self.cache = self.provider = self.second = self.cdn = None
        if not environment.given("DATABASE_URL", environ):
            self.database = Postgres(folder=folder, sockets=sockets, log=logs / "postgres.log")
        self.without_cache = not environment.given("CACHE_URL", environ) and not redis.available()
        if not environment.given("CACHE_URL", environ) and redis.available():
            self.cache = redis.Redis(folder=folder, sockets=sockets, log=logs / "redis.log")
        if not environment.given("LLM_BASE_URL", environ):
            self.provider = self._port("LLM_BASE_URL")
        if not environment.given("CDN_URL", environ):
            self.cdn = self._port("CDN_URL")
        # Any port: the demo tells the service where it is, in each run.
        self.second = None if self.provider is None else ports.same_or_free(0)

    def write(self, host: str, port: int, environ: Mapping[str, str]) -> dict[str, str]:
        """Writes the environment file; the values in it. This process must hold the folder."""
        addresses = environment.kept_addresses(environ)
        if self.database is not None:
            addresses["DATABASE_URL"] = self.database.service_url
            addresses["DATABASE_OWNER_URL"] = self.database.url
        if self.cache is not None:
            addresses["CACHE_URL"] = self.cache.url
        elif self.without_cache:
            addresses["CACHE_URL"] = ""
        if self.provider is not None:
            addresses["LLM_BASE_URL"] = f"http://127.0.0.1:{self.provider}/v1"
        if self.cdn is not None:
            # The stand-in caches what it has read, as a CDN does.
            addresses |= {"CDN_URL": f"http://127.0.0.1:{self.cdn}", "CDN_PURGE": "purge"}
        values = for_run(
            self._folder, host=host, port=port, addresses=addresses, before=self._before
        )
        environment.write(self._folder / "env", values)
        return values

    @property
    def second_url(self) -> str:
        return f"http://127.0.0.1:{self.second}"

    def _port(self, name: str) -> int:
        """The port of last time if it is free, because published manifests name it."""
        port = self._before.get(name, "").rpartition(":")[2].partition("/")[0]
        return ports.same_or_free(int(port) if port.isdigit() else 0)


class Start:
    """One start. Its programs are stopped in the opposite order when ``running`` closes."""

    def __init__(self, folder: Path, running: ExitStack, host: str, port: int) -> None:
        self._folder, self._running, self._host, self._port = folder, running, host, port
        self._logs = claim(folder / "log")
        self._started = time.monotonic()
        self._environ: dict[str, str] = {}
        # Everything stops with a vital program; the others are started again.
        self._vital: list[Child] = []
        self._kept: list[Child] = []

    def say(self, text: str) -> None:
        """Prints one step with its time; further lines of the text are set under the first."""
        first, *rest = text.splitlines()
        lines = [
            f"{time.monotonic() - self._started:6.1f} s  {first}",
            *(f"{'':10}{each}" for each in rest),
        ]
        print("\n".join(lines), flush=True)

    def everything(self) -> NoReturn:
        """Starts all of it in order, prints its addresses, and watches over it."""
        self.say(f"Starting in {self._folder.parent}")
        servers = self._prepare()
        self._bring(servers)
        self._step("migrate", "migrate", "--no-input")
        if servers.database is not None:
            self._step("roles", "split_database_roles")
        self.say("Database is up to date")
        try:
            self._step("app", "publish_app", *demo_app.arguments(self._folder))
            self.say("Demo app is published")
        except Unready:
            # Another key or storage than this folder's: its owner publishes there.
            self.say("Demo app is not published; log/app.log says why")
        second = () if servers.second is None else ("--second-provider", servers.second_url)
        self._step("seed", "seed_demo", "--output", str(self._folder / "demo.json"), *second)
        self.say("Demo data is there")
        if servers.provider is not None:
            self._stand_in("provider", servers.provider, "--host", "127.0.0.1")
            self.say("Stand-in model provider answers")
        if servers.second is not None:
            self._stand_in("messages_provider", servers.second)
            self.say("Second stand-in provider answers")
        if servers.cdn is not None:
            self._stand_in("cdn", servers.cdn, str(self._folder / "storage"))
            self.say("Stand-in CDN answers")
        self._keep(self._program("worker", "manage.py", "work"))
        self.say("Worker is started")
        self._web()
        self.say("Service answers")
        own = servers.database is not None
        print(announcement(self._folder, self._environ, own_database=own), flush=True)
        self._watch()

    def _prepare(self) -> Servers:
        """Makes the folders and the environment, for this run and in its file."""
        for log in self._logs.glob("*.log"):
            log.unlink()
        claim(self._folder / "storage")
        claim(self._folder / "mail")
        sockets = self._running.enter_context(sockets_of(self._folder))
        servers = Servers(self._folder, sockets, os.environ)
        values = servers.write(self._host, self._port, os.environ)
        # A port of 0 has become a number by now.
        own = {"HOST": self._host, "PORT": str(self._port), "PYTHONUNBUFFERED": "1"}
        if servers.database is not None:
            own["DATABASE_OWNER_URL"] = values["DATABASE_OWNER_URL"]
        self._environ = {**os.environ, **environment.missing(values, os.environ), **own}
        self.say("Environment is written")
        return servers

    def _bring(self, servers: Servers) -> None:
        if servers.database is not None:
            self._watch_over(servers.database.start())
            self.say("PostgreSQL answers")
        if servers.cache is not None:
            # The service goes on without it, and so does the run.
            self._keep(servers.cache.program()).wait_until(servers.cache.answers, seconds=60)
            self.say("Redis answers")
        elif servers.without_cache:
            self.say("No Redis: this Python has no package of it, so each process counts alone")

    def _step(self, name: str, *arguments: str) -> None:
        """A management command that must succeed before anything else starts."""
        child = self._program(name, "manage.py", *arguments).start()
        with ExitStack() as step:
            step.callback(child.stop)
            child.wait_for_success()

    def _stand_in(self, name: str, port: int, *arguments: str) -> None:
        module = ("-m", f"tests.standins.{name}", "--port", str(port), *arguments)
        child = self._keep(self._program(name, *module))
        log = child.program.log
        child.wait_until(lambda: b"listening on" in log.read_bytes(), seconds=60)

    def _web(self) -> None:
        command = ["-m", "gunicorn", "--no-control-socket", "-c", "python:config.gunicorn"]
        # Orphaned, its master ends its workers at once and frees the port.
        program = self._program(
            "web", *command, "config.wsgi:application", orphaned_by=signal.SIGQUIT
        )
        child = program.start()
        self._watch_over(child)
        child.wait_until(partial(healthy, reachable(self._host), self._port), seconds=60)

    def _watch_over(self, child: Child) -> None:
        self._running.callback(child.stop)
        self._vital.append(child)

    def _keep(self, program: Program) -> Child:
        child = program.start()
        self._running.callback(child.stop)
        self._kept.append(child)
        return child

    def _program(
        self, name: str, *arguments: str, orphaned_by: signal.Signals = signal.SIGKILL
    ) -> Program:
        return Program(
            name=name,
            command=[sys.executable, *arguments],
            log=self._logs / f"{name}.log",
            environ=self._environ,
            orphaned_by=orphaned_by,
        )

    def _watch(self) -> NoReturn:
        """Runs until a vital program ends, which is Unready with the end of its log, or a signal raises."""
        while True:
            for child in self._vital:
                if child.ended is not None:
                    words = (
                        f"{child.obituary()}\nNothing works without it, so everything is stopped."
                    )
                    raise Unready(words)
            for child in [each for each in self._kept if each.ended is not None]:
                self.say(f"{child.obituary()}\nIt is started again in {RESTART_SECONDS:.0f} s.")
                self._kept.remove(child)
                pause(RESTART_SECONDS)
                self._keep(child.program)
                self.say(f"{child.program.name} is started again")
            pause(0.2)


def healthy(host: str, port: int) -> bool:
    """Returns whether ``/healthz`` answers 200 there; host as it stands in an address."""
    with (
        closing(http.client.HTTPConnection(f"{host}:{port}", timeout=5)) as connection,
        suppress(OSError, http.client.HTTPException),
    ):
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    return False
