"""The stage of every part of the bench: servers, services, references, people, and load.

Everything started here ends with the bench. All services of a stage share one database, one provider, one cache and
one ``BASE_URL``, so that a caller's token is good for each of them.
"""

import http.client
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import redis
from django.conf import settings

from accounts.models import SigningKey
from config.platform.edge.ratelimits.table import DEFAULTS
from tests.bench import wrk
from tests.bench.callers import CAPS, Caller, make_callers
from tests.bench.figures import Line
from tests.bench.length import usual
from tests.bench.processes import cpu_seconds, tree
from tests.served.database import Database, new_database
from tests.served.service import manage
from tests.served.shell import Shell
from tests.tools.children import Child, Program
from tests.tools.ports import free

HOST = "127.0.0.1"
WORKERS = 2
SECONDS = 4.0
LONGEST = usual(60.0, short=1.0)
# Counted at each request, and met by none.
RAISED = ",".join(f"{name}=100000000/m" for name in DEFAULTS)


@dataclass(frozen=True, slots=True)
class Served:
    """Something that answers HTTP, with the processes that it is made of."""

    child: Child
    port: int
    environ: Mapping[str, str]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pids(self) -> list[int]:
        """All of its processes."""
        return tree(self.child.pid)

    @property
    def workers(self) -> list[int]:
        """Its web workers, where it is served by gunicorn."""
        return self.pids[1:]

    @property
    def cpu(self) -> float:
        """Seconds it has computed so far."""
        return cpu_seconds(self.pids)

    @property
    def log(self) -> Path:
        return self.child.program.log

    def manage(self, *arguments: str) -> str:
        """Runs a management command beside it, as an operator does; what it printed."""
        return manage(self.environ, *arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The latencies of callers (milliseconds), and CPU milliseconds a request of each kind of process."""

    requests: int
    rps: float
    p50: float
    p99: float
    failed: int
    cpu_ms: float
    postgres_ms: float
    redis_ms: float
    provider_ms: float


@dataclass(kw_only=True)
class Stage:
    """Made by :func:`stage`."""

    folder: Path
    database: Database
    provider: Served
    postgres: Child
    redis_pid: int | None
    environ: dict[str, str]
    public_key: str = ""
    _running: ExitStack = field(default_factory=ExitStack)

    @contextmanager
    def service(self, *, workers: int = WORKERS, **environ: str) -> Iterator[Served]:
        """The service as it is run, with everything switched on; variables that are given go before the usual."""
        given = {"WEB_WORKERS": str(workers), **environ}
        with self._gunicorn("service", "config.gunicorn", "config.wsgi", given) as served:
            yield served

    @contextmanager
    def reference(
        self,
        name: str,
        *,
        workers: int = WORKERS,
        settings_module: str = "tests.bench.references.settings",
        **environ: str,
    ) -> Iterator[Served]:
        """``references/<name>.py``, whose ``application`` is served as the service is.

        It is given what the service is, ``BENCH_PUBLIC_KEY``, the PEM that callers' tokens are verified with, and
        ``BENCH_URLS``, the module itself. Its sessions in the database bear its name.
        """
        given = {
            "WEB_WORKERS": str(workers),
            "DJANGO_SETTINGS_MODULE": settings_module,
            "BENCH_PUBLIC_KEY": self.public_key,
            "BENCH_URLS": f"tests.bench.references.{name}",
            "PGAPPNAME": name,
            **environ,
        }
        serving = "tests.bench.references.serving"
        with self._gunicorn(name, serving, f"tests.bench.references.{name}", given) as served:
            yield served

    @contextmanager
    def run(self, name: str, command: Sequence[str], port: int, **environ: str) -> Iterator[Served]:
        """Any other program that listens on a port of ours; ready when it answers anything."""
        own = {**self.environ, **environ}
        log = self.folder / f"{name}-{port}.log"
        with _program(name, command, port, log=log, environ=own) as served:
            yield served

    @contextmanager
    def provider_over_tls(self, certificate: Path) -> Iterator[int]:
        """The port of another stand-in provider, which has this certificate."""
        with _provider(self.folder, certificate) as served:
            yield served.port

    def callers(self, number: int, *, caps: Mapping[str, int] = CAPS) -> list[Caller]:
        """People with tokens; by default with caps that hold and that nobody reaches."""
        return make_callers(self.database, number, caps=caps)

    def shell(self, served: Served, person: Caller) -> Shell:
        """A person who signs in over HTTP, as a shell does; has its tokens."""
        shell = Shell(served.url)
        answer = shell.login(person.email, person.password)
        assert answer.status_code == 200, answer.text
        return shell

    def load(
        self, served: Served, path: str, *, callers: int, seconds: float = SECONDS, **asked: Any
    ) -> Load:
        """So many callers who ask without a pause, by wrk; ``asked`` is what ``wrk.run`` takes: method, tokens…"""
        limit = min(seconds, LONGEST)
        run = partial(wrk.run, f"{served.url}{path}", callers=callers, seconds=limit, **asked)
        return self.metered(served, run)

    def metered(self, served: Served, run: Callable[[], wrk.Result]) -> Load:
        """The same for any other load."""
        before = self.cpu(served)
        result = run()
        after = self.cpu(served)
        spent = {
            f"{name}_ms": (after[name] - before[name]) * 1000 / max(result.requests, 1)
            for name in after
        }
        return Load(
            requests=result.requests,
            rps=result.rps,
            p50=result.p50,
            p99=result.p99,
            failed=result.failed,
            **spent,
        )

    def cpu(self, served: Served) -> dict[str, float]:
        """Seconds computed so far by what serves (``cpu``), PostgreSQL, Redis and the provider."""
        return {
            "cpu": served.cpu,
            "postgres": cpu_seconds(tree(self.postgres.pid)),
            "redis": cpu_seconds([self.redis_pid] if self.redis_pid else []),
            "provider": self.provider.cpu,
        }

    @contextmanager
    def _gunicorn(
        self, name: str, serving: str, application: str, environ: Mapping[str, str]
    ) -> Iterator[Served]:
        port = free(HOST, 0)
        command = [sys.executable, "-m", "gunicorn", "-c", f"python:{serving}", application]
        with self.run(name, command, port, PORT=str(port), **environ) as served:
            yield served


@contextmanager
def stage(folder: Path, postgres: Child) -> Iterator[Stage]:
    """A migrated, seeded database on the server that ``DATABASE_URL`` names, and a fast provider."""
    with ExitStack() as running:
        database = running.enter_context(new_database(nullcontext))
        provider = running.enter_context(_provider(folder))
        environ = {
            **os.environ,
            "HOST": HOST,
            "ALLOWED_HOSTS": HOST,
            "DATABASE_URL": database.url,
            "LLM_BASE_URL": f"{provider.url}/v1",
            "RATE_LIMITS": RAISED,
        }
        manage(environ, "migrate", "--no-input")
        manage(environ, "seed_demo", "--output", str(folder / "demo.json"))
        made = Stage(
            folder=folder,
            database=database,
            provider=provider,
            postgres=postgres,
            redis_pid=_redis_pid(),
            environ=environ,
        )
        with database.rows():
            made.public_key = SigningKey.objects.get().public_pem
        yield made


def others(part: str, who: str, thing: str, loads: Sequence[Load]) -> list[Line]:
    """For orientation: what each ``thing`` (a call, a request) cost PostgreSQL and Redis."""
    spent = {
        "PostgreSQL": [each.postgres_ms for each in loads],
        "Redis": [each.redis_ms for each in loads],
    }
    return [
        Line(part=part, goal="", name=f"CPU of {name}, {who}", unit=f"ms/{thing}", ours=figures)
        for name, figures in spent.items()
    ]


def _redis_pid() -> int | None:
    """Returns the process id of the cache, if there is one and it runs here."""
    if not settings.CACHE_URL:
        return None
    with redis.Redis.from_url(settings.CACHE_URL) as client:
        return int(client.info("server")["process_id"])


@contextmanager
def _provider(folder: Path, certificate: Path | None = None) -> Iterator[Served]:
    port = free(HOST, 0)
    command = [sys.executable, "-m", "tests.standins.provider", "--port", str(port)]
    log, is_ready = folder / f"provider-{port}.log", _answers
    if certificate is not None:
        command += ["--certificate", str(certificate)]
        is_ready = _accepts
    program = _program("provider", command, port, log=log, environ=os.environ, is_ready=is_ready)
    with program as served:
        yield served


@contextmanager
def _program(
    name: str,
    command: Sequence[str],
    port: int,
    *,
    log: Path,
    environ: Mapping[str, str],
    is_ready: Callable[[int], bool] | None = None,
) -> Iterator[Served]:
    program = Program(name=name, command=command, log=log, environ=environ)
    child = program.start()
    try:
        child.wait_until(partial(is_ready or _answers, port), seconds=60)
        yield Served(child, port, environ)
    finally:
        child.stop()


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=30):
        return True
    return False


def _answers(port: int) -> bool:
    with (
        closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection,
        suppress(OSError, http.client.HTTPException),
    ):
        connection.request("GET", "/__stats")
        connection.getresponse().read()
        return True
    return False
