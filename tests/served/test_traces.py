"""The traces of a service that runs, as a collector of another's making gets them."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest

from tests.served.canaries import Secrets, prompt
from tests.served.conftest import Ground, SignIn
from tests.served.people import Person, add_person
from tests.served.service import HOST, is_worked_off, running_service, working_off
from tests.served.shell import Shell, stand_in
from tests.standins.collector import Collector, Span, running_collector
from tests.tools.folders import ROOT
from tests.tools.ports import free
from tests.waiting import eventually

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
# Long enough that nothing waits for it to pass.
HOUR = "3600000"
LOADED = """
import json, sys
NAMES = ("opentelemetry.sdk.trace", "opentelemetry.exporter", "opentelemetry.instrumentation", "google.protobuf")
import config.wsgi
from config.platform.runtime import serving
from config.platform.http import client
from config.platform.edge import request_log
print(json.dumps([name for name in sys.modules if name.startswith(NAMES)]))
print(json.dumps(len(serving.around_requests + serving.around_jobs + client.around + request_log.begun)))
"""


@dataclass
class Told:
    """The requests to a service by trace id, and the spans that a collector received."""

    collector: Collector
    secret: Secrets
    person: Person
    # The id of the shell's own span.
    shell: str = field(default_factory=lambda: secrets.token_hex(8))
    # By path and flag: the id of the trace, and the last that the provider was sent.
    traces: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    header_names: set[str] = field(default_factory=set)

    def spans(self, path: str, flag: str = "01") -> list[Span]:
        trace, _ = self.traces[path, flag]
        return [each for each in self.collector.spans if each.trace == trace]


@pytest.fixture(scope="module")
def told(ground: Ground) -> Iterator[Told]:
    """Nothing is sent until the processes stop, so that all of it is sent by then."""
    with running_collector() as collector, ExitStack() as running:
        environ = {ENDPOINT: collector.url, "OTEL_BSP_SCHEDULE_DELAY": HOUR}
        service = running.enter_context(
            running_service(ground.folder, {**ground.environ, **environ})
        )
        worker = running.enter_context(working_off(service))
        for child in (service.child, worker):
            # A killed process sends nothing.
            child.program = replace(child.program, patience=60.0)
        secret = Secrets()
        told = Told(
            collector,
            secret,
            add_person(ground.database, email=f"{secret.word('name')}@served.test"),
        )
        shell = Shell(service.url)
        assert shell.login(told.person.email, told.person.password).status_code == 200
        secret.also(shell.access, shell.refresh_token, told.person.password, str(told.person.id))
        for path, flag in (("complete", "01"), ("stream", "01"), ("complete", "00")):
            call(told, shell, ground, path, flag)
        be_refused(told, shell)
        shell.post("/v1/auth/password/reset", {"email": told.person.email})
        eventually(lambda: is_worked_off(ground.database), seconds=120)
        running.close()
        assert service.errors() == []
        yield told


def call(told: Told, shell: Shell, ground: Ground, path: str, flag: str) -> None:
    trace, word = secrets.token_hex(16), told.secret.word
    headers = {
        "traceparent": f"00-{trace}-{told.shell}-{flag}",
        "tracestate": f"shell={word('state')}",
        "baggage": f"name={word('baggage')}",
    }
    body = prompt(told.secret, "tokens=3")
    answer = shell.post(f"/v1/llm/{path}?{word('query')}", body, headers=headers)
    assert answer.status_code == 200, answer.text
    last = ground.provider.last()
    told.traces[path, flag] = trace, last["trace"]
    told.header_names |= {*last["header_names"]}


def be_refused(told: Told, shell: Shell) -> None:
    """With secrets in every place that a request has."""
    word = told.secret.word
    for path in (f"/v1/nowhere/{word('path')}", f"/account/password/{word('link').ljust(43, 'x')}"):
        shell.get(f"{path}?{word('query')}", headers={"User-Agent": word("agent")})
    shell.get("/v1/auth/me", headers={"Host": word("host"), "Cookie": word("cookie")})
    shell.call(word("METHOD"), "/v1/auth/me")
    shell.login(f"{word('other')}@served.test", word("password"))
    shell.complete(f"{word('prompt')} {stand_in('fault=status:500')}")


@pytest.mark.parametrize("path", ["complete", "stream"])
def test_a_call_is_one_trace_from_the_shell_to_the_provider(told: Told, path: str) -> None:
    spans = told.spans(path)
    (server,) = (each for each in spans if each.kind == "SERVER")
    assert server.parent == told.shell
    assert server.name == f"POST llmproxy:{path}"
    assert server.facts["http.response.status_code"] == 200
    asked = {
        str(each.facts.get("db.system.name")): each for each in spans if each.parent == server.id
    }
    assert asked.keys() == {"postgresql", "redis", "None"}
    assert str(asked["redis"].facts["db.query.text"]).startswith("EVALSHA ?")
    provider = asked["None"]
    assert (provider.name, provider.facts["server.address"]) == ("POST", HOST)
    trace, sent = told.traces[path, "01"]
    assert sent == f"00-{trace}-{provider.id}-01"
    # To the end of the answer, and of what follows it: the call is settled.
    assert server.ended_at == max(each.ended_at for each in spans)
    settled = [
        each for each in spans if "SET state = 'settled'" in str(each.facts.get("db.query.text"))
    ]
    assert [each.parent for each in settled] == [server.id]
    assert told.collector.services == {"shell-backend"}


def test_a_call_that_the_shell_does_not_sample_goes_on_to_the_provider_untold(told: Told) -> None:
    trace, sent = told.traces["complete", "00"]
    assert told.spans("complete", "00") == []
    assert sent.startswith(f"00-{trace}-")
    assert sent.endswith("-00")


def test_tracestate_and_baggage_of_callers_do_not_reach_the_provider(told: Told) -> None:
    assert "traceparent" in told.header_names
    assert told.header_names.isdisjoint({"tracestate", "baggage"})


def test_a_job_is_a_trace_of_its_own(told: Told) -> None:
    # Tried again, it is another one.
    job = next(each for each in told.collector.spans if each.name == "accounts.send_reset")
    assert (job.kind, job.parent) == ("CONSUMER", "")
    inside = [each for each in told.collector.spans if each.parent == job.id]
    assert {each.facts["db.system.name"] for each in inside} == {"postgresql"}


def test_nothing_that_nobody_asked_for_is_a_trace(told: Told) -> None:
    """Workers look at their queue, and processes at each other."""
    roots = {each.kind for each in told.collector.spans if not each.parent}
    assert roots == {"SERVER", "CONSUMER"}


def test_no_span_says_what_a_person_says_or_holds(told: Told) -> None:
    assert len([each for each in told.collector.spans if each.kind == "SERVER"]) > 8
    for each in told.collector.spans:
        assert told.secret.found_in(each.whole) == set(), each
        assert told.secret.label not in each.whole
        assert "127.0.0.1" not in each.whole or each.kind == "CLIENT"


@pytest.mark.parametrize("hangs", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_collector_that_is_away_keeps_nobody(
    ground: Ground, sign_in: SignIn, person: Person, hangs: bool
) -> None:
    with ExitStack() as stack:
        collector = stack.enter_context(running_collector(hangs=True))
        url = collector.url if hangs else f"http://{HOST}:{free(HOST, 0)}"
        environ = {
            # Longer than a shell waits.
            "OTEL_EXPORTER_OTLP_TIMEOUT": "600" if hangs else "1",
            "OTEL_BSP_SCHEDULE_DELAY": "10",
            "OTEL_BSP_MAX_QUEUE_SIZE": "64",
        }
        service = stack.enter_context(
            running_service(ground.folder, {**ground.environ, ENDPOINT: url, **environ})
        )
        shell = sign_in(service, person)
        log = service.child.program.log
        eventually(
            lambda: collector.asked.is_set() if hangs else "traces_lost" in log.read_text(),
            seconds=60,
        )
        # More spans than there is room for.
        for _ in range(12):
            assert shell.get("/v1/auth/me").status_code == 200
            assert shell.complete(stand_in("tokens=1")).status_code == 200
        assert service.errors() == []
        os.kill(service.child.pid, signal.SIGTERM)
        eventually(lambda: service.child.ended is not None, seconds=60)
        assert service.child.ended == 0


def test_a_service_without_a_collector_loads_nothing_of_it(ground: Ground) -> None:
    environ = {**os.environ, **ground.environ}
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded, around = (json.loads(line) for line in done.stdout.splitlines())
    assert (loaded, around) == ([], 0)
