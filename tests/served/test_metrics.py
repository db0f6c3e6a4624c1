"""The metrics of a running service: what a scrape contains, what a killed process leaves, and who is woken by what."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import run
from typing import Any

import psycopg
import pytest
import requests
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from procrastinate.contrib.django.models import ProcrastinateJob
from prometheus_client.parser import text_string_to_metric_families

from accounts.audit import Actor, record
from config.platform.observability.metrics_serving import lives
from tests.served.conftest import Ground, Seeds, SignIn
from tests.served.database import Database
from tests.served.people import Person, add_person
from tests.served.service import HOST, WORKERS, Service, running_service, working_off
from tests.served.shell import PATIENCE, Shell, stand_in
from tests.tools.children import Program
from tests.tools.folders import ROOT
from tests.tools.ports import free
from tests.waiting import eventually

MONITORING = ROOT / "docs" / "examples" / "monitoring"
OPERATING = ROOT / "docs" / "operating.md"
# Everything that is looked at every few seconds has been looked at.
SOON = 60.0
ALERT = re.compile(r"- alert: (\w+)\n.*?runbook_url: (\S+)\n\s+symptom: \"(.*?)\"", re.DOTALL)


@dataclass(frozen=True)
class Measured:
    service: Service
    port: int
    worker_port: int

    def numbers(self, *, of_worker: bool = False) -> dict[tuple[str, frozenset[str]], float]:
        """Returns the values of a scrape, by name and labels."""
        text = self.scrape(of_worker=of_worker)
        return {
            (sample.name, frozenset(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def number(self, name: str, *labels: str, of_worker: bool = False) -> float:
        return self.numbers(of_worker=of_worker).get((name, frozenset(labels)), 0.0)

    def scrape(self, *, of_worker: bool = False) -> str:
        port = self.worker_port if of_worker else self.port
        answer = requests.get(f"http://{HOST}:{port}/metrics", timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        return answer.text


@pytest.fixture
def measured(ground: Ground) -> Iterator[Measured]:
    port, worker_port = free(HOST, 0), free(HOST, 0)
    ports = {"METRICS_PORT": str(port), "WORKER_METRICS_PORT": str(worker_port)}
    with running_service(ground.folder, {**ground.environ, **ports}) as service:
        measured = Measured(service, port, worker_port)
        eventually(lambda: answers(port), seconds=SOON)
        yield measured


def test_a_call_is_told_with_its_model_tokens_and_times_and_no_person(
    measured: Measured, person: Person, sign_in: SignIn
) -> None:
    shell = sign_in(measured.service, person)
    with shell.stream(stand_in("tokens=10 delay=0.01")) as stream:
        assert stream.rest()
    assert shell.complete(stand_in("fault=status:503")).status_code == 503
    asked = ("default", "stand-in-small", "chat")
    eventually(lambda: measured.number("shell_requests_total", "llmproxy:stream", "200") == 1)
    told = measured.numbers()
    assert told["gen_ai_client_token_usage_sum", frozenset((*asked, "output"))] == 10
    assert told["gen_ai_client_operation_time_to_first_chunk_seconds_count", frozenset(asked)] == 1
    assert (
        told["gen_ai_client_operation_time_per_output_chunk_seconds_count", frozenset(asked)] == 1
    )
    assert told["gen_ai_client_operation_duration_seconds_count", frozenset(asked)] == 2
    assert told["shell_calls_total", frozenset((*asked, "done"))] == 1
    assert told["shell_calls_total", frozenset((*asked, "provider_failed"))] == 1
    assert told["shell_refusals_total", frozenset(("provider_unavailable",))] == 1
    text = measured.scrape()
    assert not any(each in text for each in (person.email, str(person.id), shell.access[:20]))


def test_a_stream_that_runs_and_a_server_that_answers_are_told(
    measured: Measured, person: Person, sign_in: SignIn
) -> None:
    shell = sign_in(measured.service, person)
    with shell.stream(stand_in("tokens=1000 delay=0.1")) as stream:
        stream.next_event()
        eventually(lambda: measured.number("shell_calls_open", "stream") == 1, seconds=SOON)
    eventually(lambda: measured.number("shell_calls_open", "stream") == 0, seconds=SOON)
    assert measured.number("shell_dependency_up", "database") == 1
    assert measured.number("shell_dependency_up", "cache") == 1
    # Not of a thread that a forked process was given either.
    assert "Traceback" not in measured.service.child.program.log.read_text()


@pytest.mark.full
def test_a_killed_process_takes_no_count_with_it(measured: Measured) -> None:
    shell = Shell(measured.service.url)
    for _ in range(6):
        assert shell.login("nobody@served.test", "wrong").status_code == 401
    eventually(lambda: measured.number("shell_sign_ins_refused_total") == 6)
    killed = measured.service.workers()
    for each in killed:
        if "metrics_port" not in Path(f"/proc/{each}/cmdline").read_text():
            os.kill(each, signal.SIGKILL)
    eventually(lambda: shell.get("/livez").status_code == 204)
    assert shell.login("nobody@served.test", "wrong").status_code == 401
    eventually(lambda: measured.number("shell_sign_ins_refused_total") == 7)

    def is_cleared() -> bool:
        """There are the master, its workers and what the killed have left, and nothing of each of those."""
        kept = {int(file.stem.rpartition("_")[2]) for file in folder_of(measured).glob("*.db")}
        return len(kept) <= 2 + WORKERS and kept.isdisjoint(
            {each for each in killed if not lives(each)}
        )

    eventually(is_cleared)


@pytest.mark.full
def test_the_program_that_serves_comes_again_and_goes_with_its_service(
    measured: Measured,
) -> None:
    folder = folder_of(measured)
    os.kill(program_of(measured), signal.SIGKILL)
    eventually(lambda: answers(measured.port), seconds=SOON)
    last = program_of(measured)
    os.kill(measured.service.child.pid, signal.SIGKILL)
    eventually(lambda: not lives(last) and not folder.exists(), seconds=SOON)


def test_a_service_without_the_port_has_neither_program_nor_library(service: Service) -> None:
    for each in service.workers():
        assert "metrics_port" not in Path(f"/proc/{each}/cmdline").read_text()
        assert "prometheus" not in Path(f"/proc/{each}/maps").read_text()


def test_the_dashboard_is_made_of_members_that_grafana_knows() -> None:
    """Its own library reads them all, down to options and queries, and drops what it does not know."""
    register_default_plugins()
    given = json.loads(text_of("dashboard.json"))
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(given)))
    assert lost(given, read) == []


def lost(given: Any, read: Any, at: str = "") -> list[str]:
    """Returns the differences of a document from the one it was read from."""
    if isinstance(given, dict) and isinstance(read, dict):
        return [
            each for name in given for each in lost(given[name], read.get(name), f"{at}.{name}")
        ]
    if isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        pairs = enumerate(zip(given, read, strict=True))
        return [each for place, pair in pairs for each in lost(*pair, f"{at}[{place}]")]
    return [] if given == read else [at]


def test_each_alert_names_a_row_of_the_docs() -> None:
    found = ALERT.findall((MONITORING / "alerts.yml").read_text())
    assert len(found) == (MONITORING / "alerts.yml").read_text().count("- alert:")
    for name, page, symptom in found:
        title = page.partition("#")[2].capitalize()
        section = OPERATING.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        assert f"\n| {symptom}" in re.sub(r"[*`]", "", section), name


@pytest.mark.wire
def test_the_examples_are_what_prometheus_takes_and_each_alert_fires_on_its_fault() -> None:
    for command in (
        ["check", "rules", "alerts.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts.test.yml"],
    ):
        done = run(
            ["promtool", *command], cwd=MONITORING, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    names = {name for name, _, _ in ALERT.findall((MONITORING / "alerts.yml").read_text())}
    tested = re.findall(r"eval_time: [1-9]\w+\n +alertname: (\w+)", text_of("alerts.test.yml"))
    assert names == set(tested)


@pytest.mark.wire
def test_the_dashboard_asks_for_what_there_is(measured: Measured) -> None:
    with working_off(measured.service):
        eventually(lambda: answers(measured.worker_port), seconds=SOON)
        told = measured.scrape() + measured.scrape(of_worker=True)
    known = set(re.findall(r"^# TYPE (\S+) ", told, re.MULTILINE))
    known |= {f"{each}{end}" for each in known for end in ("_bucket", "_sum", "_count")}
    for file in ("dashboard.json", "alerts.yml"):
        asked = set(re.findall(r"\b(?:shell|gen_ai)_[a-z_]+[a-z](?=[\[{) \n])", text_of(file)))
        # Labels, which stand in braces or behind "by".
        asked -= {"gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type"}
        assert len(asked) > 10
        assert asked <= known, asked - known


@pytest.mark.wire
def test_a_prometheus_wakes_somebody_by_faults_that_happen(
    seeds: Seeds, ground: Ground, sign_in: SignIn, tmp_path: Path
) -> None:
    ports = [free(HOST, 0) for _ in range(3)]
    with seeds.copy() as database, ExitStack() as stack:
        environ = {
            **ground.environ,
            "DATABASE_URL": database.service_url,
            "DATABASE_OWNER_URL": database.url,
            "METRICS_PORT": str(ports[0]),
            "WORKER_METRICS_PORT": str(ports[1]),
        }
        service = stack.enter_context(running_service(ground.folder, environ))
        worker = stack.enter_context(ExitStack())
        hold_a_job(database, stack)
        worker.enter_context(working_off(service))
        eventually(lambda: answers(ports[0]) and answers(ports[1]), seconds=SOON)
        prometheus = running_prometheus(tmp_path, ports, stack)
        # Nothing but the job has happened yet; a slow machine may have alerts of its own.
        wait_for_alerts(prometheus, {"ShellQueueOld"})
        faults = {"ShellNightMissed", "ShellJobsFailed"}
        misuses = {"ShellProviderFailing", "ShellRefusals", "ShellSignInsRefused"}
        assert firing(prometheus).isdisjoint(faults | misuses)
        fail_a_night_and_a_job(database)
        shell, spent = (
            sign_in(service, add_person(database, caps)) for caps in ({}, {"monthly_input": 1})
        )

        def misuse() -> None:
            """Makes calls to a failing provider, beyond a cap and with a wrong password."""
            assert shell.complete(stand_in("fault=status:503")).status_code == 503
            assert spent.complete("Anything").status_code == 429
            for _ in range(5):
                Shell(service.url).login("nobody@served.test", "wrong")

        wait_for_alerts(prometheus, faults | misuses, misuse)
        with shell.stream(stand_in("tokens=10")) as stream:
            assert stream.rest()
        eventually(lambda: empty_panels(prometheus) == [], seconds=120)
        worker.close()
        service.child.stop()
        wait_for_alerts(prometheus, {"ShellDown", "ShellWorkerDown"})


def hold_a_job(database: Database, stack: ExitStack) -> None:
    """A job that is due and that no worker gets, because its row is locked."""
    with database.rows():
        job = ProcrastinateJob.objects.create(
            queue_name="tests",
            task_name="tests.held",
            priority=0,
            args={},
            status="todo",
            scheduled_at=datetime.now(UTC) - timedelta(hours=1),
            attempts=0,
            abort_requested=False,
        )
    held = stack.enter_context(psycopg.connect(database.url))
    held.execute("SELECT 1 FROM procrastinate_jobs WHERE id = %s FOR UPDATE", [job.pk])


def fail_a_night_and_a_job(database: Database) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=3)
    with database.rows():
        record(
            "nightly:done",
            "expire_grace",
            by=Actor(name="a test"),
            now=long_ago,
            target_id="expire_grace",
        )
        ProcrastinateJob.objects.create(
            queue_name="tests",
            task_name="tests.failed",
            priority=0,
            args={},
            status="failed",
            scheduled_at=None,
            attempts=1,
            abort_requested=False,
        )


def running_prometheus(folder: Path, ports: list[int], stack: ExitStack) -> str:
    """One that looks every second, and whose alerts need seconds for minutes."""
    rules = re.sub(r"for: \d+m", "for: 2s", text_of("alerts.yml"))
    (folder / "alerts.yml").write_text(re.sub(r"\[(5|15)m\]", "[20s]", rules))
    config = text_of("prometheus.yml").replace("15s", "1s")
    for example, port in zip(("9101", "9102"), ports[:2], strict=True):
        config = config.replace(example, str(port))
    (folder / "prometheus.yml").write_text(config)
    address = f"{HOST}:{ports[2]}"
    program = Program(
        name="prometheus",
        command=[
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ],
        log=folder / "prometheus.log",
        environ=os.environ,
    )
    child = program.start()
    stack.callback(child.stop)
    return f"http://{address}/api/v1/alerts"


def empty_panels(prometheus: str) -> list[str]:
    """The panels of the dashboard that have nothing to show; each of their expressions must be one."""
    empty = []
    for panel in json.loads(text_of("dashboard.json"))["panels"]:
        found = []
        for each in panel["targets"]:
            asked = {"query": each["expr"].replace("$__rate_interval", "1m")}
            answer = requests.get(
                prometheus.replace("alerts", "query"), params=asked, timeout=PATIENCE
            )
            assert answer.status_code == 200, answer.text
            found += answer.json()["data"]["result"]
        if not found:
            empty.append(panel["title"])
    return empty


def firing(prometheus: str) -> set[str]:
    try:
        answer = requests.get(prometheus, timeout=PATIENCE)
    except requests.ConnectionError:
        return set()
    # It answers 503 while it starts.
    alerts = answer.json()["data"]["alerts"] if answer.ok else []
    return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


def wait_for_alerts(
    prometheus: str, expected: set[str], meanwhile: Callable[[], None] = lambda: None
) -> None:
    fired: set[str] = set()

    def have_fired() -> bool:
        meanwhile()
        fired.update(firing(prometheus))
        return expected <= fired

    eventually(have_fired)


def text_of(example: str) -> str:
    return (MONITORING / example).read_text()


def folder_of(measured: Measured) -> Path:
    environ = Path(f"/proc/{program_of(measured)}/environ").read_text().split("\0")
    return Path(next(each for each in environ if each.startswith("PROM")).partition("=")[2])


def program_of(measured: Measured) -> int:
    def program() -> int | None:
        children = measured.service.workers()
        said = {each: Path(f"/proc/{each}/cmdline").read_text() for each in children}
        return next((each for each in children if "metrics_port" in said[each]), None)

    eventually(lambda: program() is not None)
    found = program()
    assert found is not None
    return found


def answers(port: int) -> bool:
    try:
        return requests.get(f"http://{HOST}:{port}/metrics", timeout=PATIENCE).status_code == 200
    except requests.ConnectionError:
        return False
