"""Two hosts on one database and one cache, each a service of its own: what the second adds, and that both count as one.

How much: as many callers to each of two behind nginx as to one behind it, each worker held to a share of a core, as a
machine of its own would have its own cores. Whether they count as one is asked of both directly and at the same time.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.bench.complete import BODY, HEADERS
from tests.bench.exactness import TELEMETRY_LIMIT, counted_as_one
from tests.bench.figures import Line, in_turns
from tests.bench.processes import cpu_seconds
from tests.bench.rationing import rationed
from tests.bench.stage import HOST, RAISED, Load, Served, Stage
from tests.tools.ports import free
from tests.tools.wire import PATH

PART = "apart"
PEOPLE = 64
CALLERS = 16
SHARE = 0.2
SECONDS = 6
ASKED: dict[str, dict[str, Any]] = {
    "status": {"path": "/v1/license/status"},
    "complete": {"path": "/v1/llm/complete", "method": "POST", "body": BODY, "headers": HEADERS},
}
NGINX = """
daemon off;
master_process off;
pid nginx.pid;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 1000000;
    upstream hosts {{
        {hosts}
        keepalive 64;
        keepalive_requests 1000000;
    }}
    server {{
        listen {host}:{port};
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $host;
        location / {{ proxy_pass http://hosts; }}
    }}
}}
"""


Fronts = dict[int, tuple[Served, list[Served]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """What callers of nginx saw, and of which share of a core each worker behind it had the use."""

    load: Load
    share: float


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    limits = f"{RAISED},telemetry.user={TELEMETRY_LIMIT}/h"
    with (
        stage.service(workers=1, RATE_LIMITS=limits) as first,
        stage.service(workers=1, RATE_LIMITS=limits) as second,
    ):
        behind = _behind_nginx(stage, [first, second], rounds)
        return [*behind, *counted_as_one(stage, PART, [first, second], rounds=rounds)]


def _behind_nginx(stage: Stage, both: list[Served], rounds: int) -> list[Line]:
    program = shutil.which("nginx", path=PATH)
    if program is None:
        name = "hosts behind nginx were not measured: it is not installed"
        return [Line(part=PART, goal="", name=name, unit="lines", ours=[0.0])]
    tokens = [each.access for each in stage.callers(PEOPLE)]
    with _nginx(stage, program, both[:1]) as one, _nginx(stage, program, both) as two:
        fronts = {1: (one, both[:1]), 2: (two, both)}
        return [
            line
            for name in ASKED
            for line in _lines(name, _loads(stage, name, tokens, fronts, rounds))
        ]


@contextmanager
def _nginx(stage: Stage, program: str, services: list[Served]) -> Iterator[Served]:
    port = free(HOST, 0)
    folder = stage.folder / f"nginx-{port}"
    folder.mkdir()
    hosts = " ".join(f"server {HOST}:{each.port};" for each in services)
    (folder / "nginx.conf").write_text(NGINX.format(hosts=hosts, host=HOST, port=port))
    command = [program, "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"]
    with stage.run("nginx", command, port) as served:
        yield served


def _loads(
    stage: Stage, name: str, tokens: list[str], fronts: Fronts, rounds: int
) -> dict[int, list[Behind]]:
    for front, _ in fronts.values():
        stage.load(front, callers=CALLERS, seconds=1, tokens=tokens, **ASKED[name])
    ways = {
        number: partial(_load, stage, name, tokens, front, services)
        for number, (front, services) in fronts.items()
    }
    return in_turns(ways, rounds=rounds)


def _load(
    stage: Stage, name: str, tokens: list[str], front: Served, services: list[Served]
) -> Behind:
    workers = [pid for each in services for pid in each.workers]
    before, began = cpu_seconds(workers), time.monotonic()
    with rationed(workers, SHARE):
        load = stage.load(
            front,
            callers=CALLERS * len(services),
            seconds=SECONDS,
            tokens=tokens,
            **ASKED[name],
        )
    assert load.failed == 0, f"{load.failed} of {load.requests} failed; see {front.log}"
    spent = (cpu_seconds(workers) - before) / (time.monotonic() - began)
    return Behind(load=load, share=spent / len(workers))


def _lines(name: str, loads: dict[int, list[Behind]]) -> list[Line]:
    one, two = loads[1], loads[2]
    held = f"{name}, two hosts behind nginx, a worker each held to {SHARE:.0%} of a core"
    line = partial(Line, part=PART, goal="", against="one host behind it")
    return [
        line(
            name=held,
            unit="requests/s",
            ours=[each.load.rps for each in two],
            reference=[each.load.rps for each in one],
        ),
        line(
            name=f"{name}, what such a worker had",
            unit="of a core",
            ours=[each.share for each in two],
            reference=[each.share for each in one],
        ),
        line(
            name=f"{name}, CPU of nginx",
            unit="ms/request",
            ours=[each.load.cpu_ms for each in two],
            reference=[each.load.cpu_ms for each in one],
        ),
    ]
