"""PgBouncer between web processes and PostgreSQL, by docs/examples/hosting/pgbouncer.ini, with four connections."""

import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from json import loads
from os import environ, kill
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import psycopg
import pytest

from tests.served.conftest import Ground, SignIn
from tests.served.crowd import all_at_once
from tests.served.database import Database
from tests.served.ledger import (
    assert_nothing_is_reserved,
    counters,
    records_of,
    sums,
    the_record,
)
from tests.served.people import Person, add_person
from tests.served.service import HOST, Service, running_service
from tests.served.shell import DONE, Shell, stand_in
from tests.standins.provider_process import Provider
from tests.tools.children import Child, Program
from tests.tools.folders import ROOT
from tests.tools.ports import free
from tests.tools.privileges import unprivileged
from tests.tools.wire import PATH
from tests.waiting import eventually

pytestmark = pytest.mark.wire

CONNECTIONS = 4
CALLERS = 24
OUTPUT = 60
# The first that sees to prepared statements, and to DEALLOCATE ALL, which follows a rollback.
PREPARES_SINCE = (1, 22)
NEVER = "?prepare_threshold=1000000000"
AT_ONCE = stand_in(f"tokens={OUTPUT}")
# Once it may go on, long enough to be in the middle of.
HELD = stand_in(f"tokens={OUTPUT} delay=0.05 held=yes")


class Pooler:
    """``address`` leads through it; ``url`` is that with what the service needs to know of its version."""

    def __init__(self, database: Database, folder: Path) -> None:
        folder.mkdir()
        self._port = free(HOST, 0)
        user = urlsplit(database.url).username
        prepares = _version() >= PREPARES_SINCE
        self._server = f"postgresql://{user}@{HOST}:{self._port}"
        self.address = f"{self._server}/shell"
        self.url = f"{self.address}{'' if prepares else NEVER}"
        (folder / "users").write_text(f'"{user}" ""\n')
        configuration = _documented(database, folder, self._port)
        if not prepares:
            configuration = re.sub(r"(?m)^max_prepared_statements.*\n", "", configuration)
        own = f"admin_users = {user}\nunix_socket_dir =\nquery_wait_timeout = 20\n"
        (folder / "pgbouncer.ini").write_text(configuration + own)
        self._program = Program(
            name="PgBouncer",
            # It refuses to be root, as PostgreSQL does.
            command=[*unprivileged(), _pgbouncer(), str(folder / "pgbouncer.ini")],
            log=folder / "pgbouncer.log",
            environ=environ,
            asked_by=signal.SIGINT,
        )
        self._child: Child | None = None

    def start(self) -> None:
        self._child = self._program.start()
        self._child.wait_until(self._answers, seconds=60)

    def kill(self) -> None:
        """Ends it as a host that fails does."""
        assert self._child is not None
        kill(self._child.pid, signal.SIGKILL)
        self._child.stop()

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop()

    def count(self, what: str) -> int:
        """Counts the ``SERVERS`` (connections to PostgreSQL) or ``CLIENTS`` of the database."""
        with psycopg.connect(f"{self._server}/pgbouncer", autocommit=True) as console:
            shown = console.execute(f"SHOW {what}".encode())
            assert shown.description
            place = [column.name for column in shown.description].index("database")
            return sum(row[place] == "shell" for row in shown)

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(self.address):
            return True
        return False


@pytest.fixture(scope="module")
def pooler(ground: Ground) -> Iterator[Pooler]:
    pooler = Pooler(ground.database, ground.folder / "pgbouncer")
    try:
        pooler.start()
        yield pooler
    finally:
        pooler.stop()


@pytest.fixture(scope="module")
def pooled(ground: Ground, pooler: Pooler) -> Iterator[Service]:
    with running_service(ground.folder, {**ground.environ, "DATABASE_URL": pooler.url}) as service:
        yield service
        assert service.errors() == []


def test_many_callers_share_four_connections_and_each_gets_what_is_theirs(
    pooled: Service, pooler: Pooler, database: Database, provider: Provider
) -> None:
    people = [add_person(database, {"monthly_output": 3 * OUTPUT}) for _ in range(CALLERS)]
    clients, servers = [], []

    def look() -> None:
        clients.append(pooler.count("CLIENTS"))
        servers.append(pooler.count("SERVERS"))

    def live(number: int) -> list[str]:
        shell, person = Shell(pooled.url), people[number]
        # Hashing has room for a few at a time, and says so.
        eventually(lambda: shell.login(person.email, person.password).status_code == 200)
        assert shell.get("/v1/license/status").status_code == 200
        assert shell.refresh().status_code == 200
        return [_call(shell, AT_ONCE, streamed=each % 2 == 0)[0] for each in range(5)]

    calls = all_at_once(CALLERS, live, meanwhile=look)
    assert calls == [["", "", "", "monthly_cap_exceeded", "monthly_cap_exceeded"]] * CALLERS
    assert provider.stats()["requests"] == 3 * CALLERS
    for person in people:
        _assert_paid(database, person, calls=3)
    assert max(servers) <= CONNECTIONS < max(clients)


def test_fifty_calls_of_one_person_at_once_never_pass_a_cap(
    pooled: Service, database: Database, provider: Provider, sign_in: SignIn
) -> None:
    cap = 10 * OUTPUT + 30
    person = add_person(database, {"monthly_output": cap})
    shell = sign_in(pooled, person)

    def within_the_cap() -> None:
        with database.snapshot():
            summed = sums(person.id)
            if any(summed.values()):
                assert {name: counters(person.id)[name] for name in summed} == summed
        assert summed["output_used"] + summed["output_reserved"] <= cap
        if len(refused) == 39:
            provider.go()

    def call(number: int) -> tuple[str, int]:
        code, told = _call(shell, HELD, streamed=number % 2 == 0)
        if code:
            refused.append(code)
        return code, told

    refused: list[str] = []
    calls = all_at_once(50, call, meanwhile=within_the_cap)
    codes = Counter(code for code, _ in calls)
    # All are admitted or refused before any ends.
    assert codes == {"": 11, "cap_reserved": 39}
    records = records_of(database, person)
    assert {record.end for record in records} == {"done"}
    assert sum(record.output_tokens for record in records) == sum(got for _, got in calls) == cap
    assert_nothing_is_reserved(database, person)


def test_the_bounds_of_statements_of_a_web_process_hold_through_it(pooler: Pooler) -> None:
    # To import it would make this process one that serves.
    source = (ROOT / "config" / "gunicorn.py").read_text()
    limits = dict(re.findall(r"-c (\w+_timeout)=(\w+)", source))
    assert len(limits) == 3
    with psycopg.connect(pooler.address) as connection:
        for name, limit in limits.items():
            assert connection.execute(f"SHOW {name}".encode()).fetchone() == (limit,)


def test_a_lock_is_free_again_when_its_holder_is_killed(ground: Ground, pooler: Pooler) -> None:
    holder, said = _alone(ground, pooler)
    assert said == "True"
    assert _ended(*_alone(ground, pooler)) == "False"
    holder.kill()
    _ended(holder, said)
    # More of them than there are connections to the server: on the holder's own it would be free in any case.
    eventually(lambda: _ended(*_alone(ground, pooler)) == "True")
    others = [_alone(ground, pooler) for _ in range(CONNECTIONS - 1)]
    assert sorted(_ended(*each) for each in others) == ["False"] * (CONNECTIONS - 2) + ["True"]


def test_killed_and_started_again_it_costs_nobody_a_session_and_the_ledger_nothing(
    pooled: Service, pooler: Pooler, database: Database, provider: Provider, sign_in: SignIn
) -> None:
    streaming, asking, refreshing = (
        [add_person(database) for _ in range(each)] for each in (6, 6, 12)
    )
    shells = {person.id: sign_in(pooled, person) for person in (*streaming, *asking, *refreshing)}
    callers = [*streaming, *asking]
    back = threading.Event()

    def outage() -> None:
        if back.wait(0.1):
            return
        provider.wait_for(lambda stats: stats["requests_open"] == len(callers))
        provider.go()
        pooler.kill()
        # Its absence has been felt.
        nobody = Shell(pooled.url)
        eventually(lambda: nobody.login("nobody@served.test", "wrong").status_code == 503)
        pooler.start()
        back.set()

    def live(number: int) -> tuple[str, int]:
        if number < len(callers):
            person = callers[number]
            return _call(shells[person.id], HELD, streamed=person in streaming)
        _keep_refreshing(shells[refreshing[number - len(callers)].id], until=back)
        return "", 0

    answers = all_at_once(CALLERS, live, meanwhile=outage)
    assert {code for code, _ in answers} <= {"", "service_unavailable"}
    for person, (code, told) in zip(callers, answers, strict=False):
        record = the_record(database, person)
        assert (record.end, record.source) == ("done", "provider")
        assert record.output_tokens == OUTPUT
        assert code or told == OUTPUT
        assert_nothing_is_reserved(database, person)
    for shell in shells.values():
        eventually(lambda shell=shell: shell.get("/v1/license/status").status_code == 200)
        assert shell.refresh().status_code == 200
    assert pooler.count("SERVERS") <= CONNECTIONS


def _alone(ground: Ground, pooler: Pooler) -> tuple[subprocess.Popen[str], str]:
    """A process that does something alone through the pooler, and whether it was let; it lasts until it is told."""
    code = (
        "import django; django.setup(); from config.platform.db.advisory_locks import alone\n"
        "with alone('a job of the test') as first: print(first, flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**environ, **ground.environ, "DATABASE_URL": pooler.url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    return process, process.stdout.readline().strip()


def _ended(process: subprocess.Popen[str], said: str) -> str:
    process.communicate("\n", timeout=60)
    return said


def _keep_refreshing(shell: Shell, *, until: threading.Event) -> None:
    """As shells do: what was not answered is asked again with the same key. Twice more once all is well."""
    left = 2
    while left:
        left -= until.is_set()
        key = str(uuid4())

        def refreshed(key: str = key) -> bool:
            answer = shell.refresh(key=key)
            assert answer.status_code in {200, 503}, answer.text
            return answer.status_code == 200

        eventually(refreshed)


def _call(shell: Shell, message: str, *, streamed: bool) -> tuple[str, int]:
    """The code of its refusal or failure, or an empty one, and the output tokens it was told."""
    if not streamed:
        body = shell.complete(message, max_tokens=OUTPUT).json()
        return body.get("code", ""), body.get("usage", {}).get("completion_tokens", 0)
    include = {"include_usage": True}
    with shell.stream(message, max_tokens=OUTPUT, stream_options=include) as stream:
        if stream.status != 200:
            return stream.problem()["code"], 0
        *_, usage, last = (block for block in stream if block != ":")
    if last != DONE:
        return loads(last)["error"]["code"], 0
    return "", loads(usage)["usage"]["completion_tokens"]


def _assert_paid(database: Database, person: Person, *, calls: int) -> None:
    eventually(lambda: all(record.end for record in records_of(database, person)))
    records = records_of(database, person)
    paid = [(record.end, record.source, record.output_tokens) for record in records]
    assert paid == [("done", "provider", OUTPUT)] * calls
    assert_nothing_is_reserved(database, person)


def _documented(database: Database, folder: Path, port: int) -> str:
    """The configuration in the documentation, at these addresses and without passwords."""
    text = (ROOT / "docs" / "examples" / "hosting" / "pgbouncer.ini").read_text()
    parts = urlsplit(database.url)
    for theirs, ours in (
        ("host=database", f"host={unquote(parts.hostname or '')} user={parts.username}"),
        ("dbname=shell", f"dbname={parts.path[1:]}"),
        ("pool_size=20", f"pool_size={CONNECTIONS}"),
        ("listen_port = 6432", f"listen_port = {port}"),
        ("auth_type = scram-sha-256", "auth_type = trust"),
        ("/etc/pgbouncer/userlist.txt", str(folder / "users")),
    ):
        assert theirs in text
        text = text.replace(theirs, ours)
    return text


def _version() -> tuple[int, ...]:
    said = subprocess.run(
        [_pgbouncer(), "--version"], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"PgBouncer (\d+)\.(\d+)", said)
    assert found, said
    return tuple(map(int, found.groups()))


def _pgbouncer() -> str:
    program = shutil.which("pgbouncer", path=PATH)
    assert program is not None, "PgBouncer is not installed; make test-wire installs it"
    return program
