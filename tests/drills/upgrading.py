"""A rolling upgrade from the release before, and back again, while people call.

The code of that release comes from this repository's history, its database from the dump that `tests/served/upgrade`
keeps.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from tests.drills.balancer import Balancer, balancing
from tests.drills.callers import Account, calling
from tests.drills.history import code_of
from tests.drills.rows import is_counted, months_that_differ, numbers_behind
from tests.releases.signing import Signer
from tests.served.browser import Browser
from tests.served.database import Database, Unblock, new_database
from tests.served.releasing import ServedPipeline
from tests.served.service import HOST, UNLIMITED
from tests.served.shell import Shell
from tests.served.test_upgrade import BEFORE as DUMPS
from tests.served.test_upgrade import restore
from tests.standins.cdn import running_cdn
from tests.standins.provider_process import running_provider
from tests.tools.children import Child, Program
from tests.tools.folders import ROOT
from tests.tools.ports import free
from tests.tools.run import healthy
from tests.waiting import eventually

BEFORE = "213cb5a1"
# Longer than a busy machine takes to tell the balancer that an instance ends.
DRAIN_SECONDS = 5
PHASE_SECONDS = 2.0
# A report holds a table for this long while the schema changes.
REPORT_SECONDS = 4.0
PAGES = (
    "/admin/",
    "/admin/accounts/client/",
    "/admin/accounts/user/",
    "/admin/accounts/auditevent/",
    "/admin/licensing/licence/",
    "/admin/llmproxy/languagemodel/",
    "/admin/releases/shellchannel/",
    "/admin/usage/usagerecord/",
)
PEOPLE = """
INSERT INTO accounts_user (id, email, password, client_id, is_active, is_staff, is_superuser, epoch, created_at)
SELECT gen_random_uuid(), 'person-' || n || '@demo.test', password, client_id, true, false, false, 0, now()
FROM accounts_user, generate_series(1, %s) AS n WHERE email = %s
"""
NO_CAPS = """
UPDATE licensing_plan SET monthly_input_tokens = NULL, monthly_output_tokens = NULL, daily_tokens = NULL
"""
LEDGER = """
SELECT count(*), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0) FROM usage_usagerecord AS record
JOIN accounts_user AS person ON person.id = record.user_id WHERE person.email LIKE 'person-%' AND record."end" = 'done'
"""
OPEN = "SELECT count(*) FROM usage_usagerecord WHERE state = 'open'"
EVENTS = "SELECT count(*) FROM telemetry_event"
JOBS = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'failed'"
WAITING = """
SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing') AND coalesce(scheduled_at, now()) <= now()
"""
# Set on the new schema, while processes of the release before go on.
LEVERS = (
    "UPDATE licensing_licence SET seats = 1, minimum_version = '0.0.1', shell_version = '2.0.1'"
)
OF_LEVERS = {"seats", "minimum_version", "shell"}
AUDIT = "SELECT count(*), coalesce(min(id), 0) FROM accounts_auditevent"


@dataclass(kw_only=True)
class Upgrade:
    """The stage of a drill: two releases, one database, and what callers see."""

    before: Path
    folder: Path
    database: Database
    balancer: Balancer
    environ: dict[str, str]
    demo: dict[str, str]
    pipeline: ServedPipeline
    account: Account
    stack: ExitStack
    say: Callable[[str], object]
    instances: dict[int, tuple[Child, Path]] = field(default_factory=dict)
    version: int = 0
    browser: Browser | None = None
    worker: Child | None = None

    def start(self, code: Path) -> int:
        """An instance of a release, once the balancer has it."""
        port = free(HOST, 0)
        environ = {**self.environ, "PORT": str(port)}
        gunicorn = ["-m", "gunicorn", "-c", "python:config.gunicorn", "config.wsgi"]
        program = _program("gunicorn", code, self.log(code, f"web-{port}"), environ, gunicorn)
        child = program.start()
        self.stack.callback(child.stop)
        child.wait_until(lambda: healthy(HOST, port), seconds=120)
        self.balancer.ports.add(port)
        self.instances[port] = child, code
        eventually(lambda: self.balancer.serves(port))
        return port

    def stop(self, port: int) -> None:
        """As a platform does: it is told, and waited for."""
        child, _ = self.instances.pop(port)
        os.kill(child.pid, signal.SIGTERM)
        eventually(lambda: child.ended is not None, seconds=90)
        assert child.ended == 0, child.obituary()
        self.balancer.ports.discard(port)

    def replace(self, code: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
        """The instances that are there by as many of a release: first the new one, then the old one ends."""
        for port in list(self.instances):
            self.start(code)
            meanwhile()
            self.stop(port)

    def restart(self, port: int, how: signal.Signals) -> None:
        """A restarted instance, by its own signal or by another one in its place."""
        child, code = self.instances[port]
        if how == signal.SIGHUP:
            before = set(_workers(child.pid))
            os.kill(child.pid, how)
            eventually(lambda: not before & set(_workers(child.pid)), seconds=90)
            eventually(lambda: self.balancer.serves(port))
        else:
            self.start(code)
            self.stop(port)

    def work(self, code: Path) -> None:
        """A worker of a release in place of the one that is there."""
        if self.worker is not None:
            assert self.worker.ended is None, self.worker.obituary()
            self.worker.stop()
        log = self.log(code, f"worker-{time.monotonic_ns()}")
        program = _program("worker", code, log, self.environ, ["manage.py", "work"], patience=60)
        self.worker = program.start()
        self.stack.callback(self.worker.stop)

    def manage(self, code: Path, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=code,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def begin(self, phase: str) -> None:
        """From here on callers are in this phase."""
        self.account.phase = phase
        self.say(phase)

    def phase(self, name: str) -> None:
        """Begins it, and lets a while of it go by."""
        self.begin(name)
        time.sleep(PHASE_SECONDS)

    def log(self, code: Path, name: str) -> Path:
        return self.folder / f"{name}.{'before' if code == self.before else 'now'}"

    def errors(self) -> list[str]:
        """The lines of this release's logs that ask for somebody to mend something."""
        lines = [line for log in self.folder.glob("*.now") for line in log.read_text().splitlines()]
        return [line for line in lines if '"level":"error"' in line]

    def use_all(self) -> None:
        """Does once what callers do with pauses only: sign in, publish, open the console."""
        shell = Shell(self.balancer.url)
        for _ in range(2):
            assert shell.login(self.demo["email"], self.demo["password"]).status_code == 200
            for path in ("/v1/auth/me", "/v1/llm/models", "/v1/auth/sessions"):
                assert shell.get(path).status_code == 200, path
        self.version += 1
        answer = self.pipeline.post(self.pipeline.made(f"2.0.{self.version}"))
        assert answer.status_code == 201, answer.text
        assert self.pipeline.offered().json()["version"] == f"2.0.{self.version}"
        if self.browser is None:
            self.browser = Browser(self.balancer.url)
            self.browser.submit(
                "/admin/login/",
                username=self.demo["operator_email"],
                password=self.demo["operator_password"],
            )
        for path in PAGES:
            page = self.browser.get(path)
            assert (page.status_code, "/login/" in page.url) == (200, False), page.url

    def use_both(self) -> None:
        """Does the same while processes of both releases serve: tokens of one are good at the other."""
        self.use_all()
        before, now = (
            next(port for port, (_, code) in self.instances.items() if (code == ROOT) is is_now)
            for is_now in (False, True)
        )
        for first, then in ((before, now), (now, before)):
            shell, other = Shell(f"http://{HOST}:{first}"), Shell(f"http://{HOST}:{then}")
            given = shell.login(self.demo["email"], self.demo["password"]).json()
            assert other.refresh(given["refresh"]).status_code == 200
            status = other.get("/v1/license/status").json()
            assert status["status"] == "active"
            told = OF_LEVERS & status.keys()
            assert told == (OF_LEVERS if self.instances[then][1] == ROOT else set())

    def use_both_for(self, seconds: float) -> None:
        """Does so again and again until the time is over, once at least."""
        ends = time.monotonic() + seconds
        self.use_both()
        while time.monotonic() < ends:
            time.sleep(PHASE_SECONDS)
            self.use_both()

    def one(self, query: str) -> Any:
        with psycopg.connect(self.database.url) as connection:
            row = connection.execute(query).fetchone() or ()
        return row if len(row) > 1 else row[0]

    def migrate(self) -> str:
        """The new schema, while a report reads a table that it changes, for longer than anybody may wait."""
        with psycopg.connect(self.database.url) as report:
            report.execute("SELECT count(*) FROM accounts_user")
            self.begin("the schema changes")
            said = []
            with subprocess.Popen(
                [sys.executable, "manage.py", "migrate"],
                cwd=ROOT,
                env={**self.environ, "PYTHONUNBUFFERED": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process:
                for line in process.stdout or ():
                    said.append(line)
                    if "trying again" in line and not report.closed:
                        time.sleep(REPORT_SECONDS)
                        report.close()
            assert process.returncode == 0, "".join(said)
        return "".join(said)


@contextmanager
def upgrade(
    unblock: Unblock, folder: Path, *, people: int, say: Callable[[str], object]
) -> Iterator[Upgrade]:
    """The release before, with a worker of its own still to be started, and nobody calling."""
    before = code_of(BEFORE, folder / "before")
    recorded = json.loads((DUMPS / f"{BEFORE}.json").read_text())
    with ExitStack() as stack:
        database = stack.enter_context(new_database(unblock))
        provider = stack.enter_context(running_provider(api_key=os.environ["LLM_API_KEY"]))
        balancer = stack.enter_context(balancing())
        files = folder / "storage"
        cdn = stack.enter_context(running_cdn(files))
        pipeline = ServedPipeline(
            signer=Signer(), cdn=cdn, files=files, signed_at=int(time.time()) - 1000
        )
        pipeline.url = balancer.url
        restore(database.url, BEFORE, datetime.fromisoformat(recorded["recorded_at"]))
        with psycopg.connect(database.url) as owner:
            owner.execute(PEOPLE, [people, recorded["demo"]["email"]])
            owner.execute(NO_CAPS)
        environ = {
            **os.environ,
            **recorded["environ"],
            **pipeline.environ(),
            "DATABASE_URL": database.service_url,
            "DATABASE_OWNER_URL": database.url,
            "LLM_BASE_URL": provider.base_url,
            "EMAIL_URL": (folder / "mail").as_uri(),
            "HOST": HOST,
            "BASE_URL": balancer.url,
            "ALLOWED_HOSTS": HOST,
            "WEB_WORKERS": "1",
            "DRAIN_SECONDS": str(DRAIN_SECONDS),
            "RATE_LIMITS": UNLIMITED,
            "OPERATOR_SECOND_FACTOR": "off",
        }
        stage = Upgrade(
            before=before,
            folder=folder,
            database=database,
            balancer=balancer,
            environ=environ,
            demo=recorded["demo"],
            pipeline=pipeline,
            account=Account(),
            stack=stack,
            say=say,
        )
        stage.manage(before, "split_database_roles")
        yield stage


def drill(
    stage: Upgrade, *, people: int, instances: int, restarts: int, side_by_side: float
) -> None:
    """Up, side by side for some seconds, restarted again and again, back, and up again."""
    stage.work(stage.before)
    for _ in range(instances):
        stage.start(stage.before)
    shells = []
    for number in range(1, people + 1):
        shell = Shell(stage.balancer.url)
        answer = shell.login(f"person-{number}@demo.test", stage.demo["password"])
        assert answer.status_code == 200, answer.text
        shells.append(shell)
    with calling(shells, stage.account):
        stage.phase("the release before")
        stage.use_all()
        said = stage.migrate()
        assert "trying again" in said
        assert "accounts.0033_emails_have_one_form... OK" in said
        with psycopg.connect(stage.database.url) as owner:
            owner.execute(LEVERS)
        stage.phase("the release before on the new schema")
        stage.use_all()
        stage.begin("side by side")
        stage.work(ROOT)
        # The time is that of all instances together.
        stage.replace(ROOT, meanwhile=lambda: stage.use_both_for(side_by_side / instances))
        for number in range(restarts):
            how = (signal.SIGTERM, signal.SIGHUP)[number % 2]
            stage.begin(f"restart {number + 1} by {how.name}")
            stage.restart(next(iter(stage.instances)), how)
        stage.phase("this release")
        stage.use_all()
        stage.begin("back to the release before")
        stage.work(stage.before)
        stage.replace(stage.before)
        stage.phase("the release before again")
        stage.use_all()
        stage.begin("this release again")
        stage.work(ROOT)
        stage.replace(ROOT)
        stage.phase("this release again")
        stage.use_all()


def losses(stage: Upgrade, events: int, audit: tuple[int, int]) -> dict[str, object]:
    """Returns the losses by name; empty if nothing was lost. Call it once nobody calls any more."""
    account, url = stage.account, stage.database.url
    with suppress(AssertionError):
        eventually(lambda: stage.one(WAITING) == 0 and is_counted(url), seconds=150)
    ledger, found = (account.calls, account.input, account.output), stage.one(LEDGER)
    kept, oldest = stage.one(AUDIT)
    checked = {
        "requests failed": account.failed,
        "ledger": [] if found == ledger else [ledger, found],
        "telemetry": account.events - (stage.one(EVENTS) - events),
        "audit": kept < audit[0] or oldest != audit[1],
        "jobs that failed": stage.one(JOBS),
        "jobs that wait": stage.one(WAITING),
        "calls that are open": stage.one(OPEN),
        "months that differ from their calls": months_that_differ(url),
        "days that differ from their calls": not is_counted(url),
        "numbers given out twice": numbers_behind(url),
        "lines of logs": stage.errors(),
    }
    return {name: lost for name, lost in checked.items() if lost}


def _program(
    name: str,
    code: Path,
    log: Path,
    environ: Mapping[str, str],
    arguments: Sequence[str],
    **ends: Any,
) -> Program:
    """Python in another folder than that of this code."""
    inside = ["sh", "-c", 'cd "$0" && exec "$@"', str(code), sys.executable]
    return Program(
        name=name,
        command=[*inside, *arguments],
        log=log,
        environ=environ,
        orphaned_by=signal.SIGQUIT,
        **ends,
    )


def _workers(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
