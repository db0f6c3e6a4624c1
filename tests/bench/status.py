"""The licence status, which every shell asks for once a minute, beside a bare function and beside stock views."""

import time
from collections.abc import Sequence
from functools import partial

from django.db import connection

from tests.bench.figures import Line, in_turns
from tests.bench.length import usual
from tests.bench.stage import Load, Served, Stage, others
from tests.bench.stock import running_stock

PART = "status"
PATH = "/v1/license/status"
CALLERS = usual((1, 16, 64), short=(16,))
PEOPLE = 64
# Servers tell what they have counted with a delay of up to a second, and all of it when a connection ends.
COUNTED_SECONDS = 1.5
WRITTEN = """
SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables
"""


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    people = stage.callers(PEOPLE)
    tokens = [each.access for each in people]
    lines = [_written(stage, tokens)]
    with (
        stage.service() as ours,
        stage.reference("bare") as bare,
        running_stock(stage) as stock,
    ):
        strangers = [each.access for each in stock.people(PEOPLE, called="status")]
        # All of one plan, so their answers and tags are the same.
        tag = stage.shell(ours, people[0]).get(PATH).headers["ETag"]
        ways = {
            "200": partial(_load, stage, ours, tokens),
            "304": partial(_load, stage, ours, tokens, tag=tag),
            "bare": partial(_load, stage, bare, tokens),
            "stock": partial(_load, stage, stock.served, strangers),
        }
        for callers in CALLERS:
            for way in ways.values():
                way(callers=callers, seconds=1)
            here = {name: partial(way, callers=callers) for name, way in ways.items()}
            lines += _lines(callers, in_turns(here, rounds=rounds))
    return lines


def _written(stage: Stage, tokens: Sequence[str]) -> Line:
    """Measures the writes of an otherwise idle service."""
    with stage.service() as ours:
        _load(stage, ours, tokens, callers=16, seconds=1)
        before = _rows_written(stage)
        load = _load(stage, ours, tokens, callers=16)
    written = _rows_written(stage) - before
    return Line(
        part=PART,
        goal="no write",
        name=f"rows written by {load.requests:,} requests",
        unit="rows",
        ours=[written],
        at_most=0,
    )


def _rows_written(stage: Stage) -> int:
    time.sleep(COUNTED_SECONDS)
    with stage.database.rows(), connection.cursor() as cursor:
        cursor.execute(WRITTEN)
        (rows,) = cursor.fetchone() or (0,)
    return int(rows)


def _load(
    stage: Stage,
    served: Served,
    tokens: Sequence[str],
    *,
    callers: int,
    seconds: float = 4,
    tag: str = "",
) -> Load:
    headers = {"If-None-Match": tag} if tag else {}
    load = stage.load(
        served, PATH, callers=callers, seconds=seconds, headers=headers, tokens=tokens
    )
    assert load.failed == 0, f"{load.failed} of {load.requests} requests failed; see {served.log}"
    return load


def _lines(callers: int, loads: dict[str, list[Load]]) -> list[Line]:
    who = f"{callers} caller{'s' if callers > 1 else ''}"
    ours, unchanged, bare, stock = (loads[name] for name in ("200", "304", "bare", "stock"))
    line = partial(Line, part=PART, ours=[each.rps for each in ours], unit="requests/s")
    spent = partial(Line, part=PART, ours=[each.cpu_ms for each in ours], unit="ms/request")
    return [
        line(
            name=f"requests, {who}",
            reference=[each.rps for each in bare],
            against="the bare function",
            goal="at least 0.6 of a bare function",
            at_least=0.6,
        ),
        line(
            name=f"requests beside stock views, {who}",
            reference=[each.rps for each in stock],
            against="stock views without limits",
            goal="more than stock views without limits",
            at_least=1.0,
        ),
        spent(
            name=f"CPU of the web workers beside the bare function's, {who}",
            reference=[each.cpu_ms for each in bare],
            against="the bare function",
            goal="",
        ),
        spent(
            name=f"CPU of the web workers beside stock views', {who}",
            reference=[each.cpu_ms for each in stock],
            against="stock views",
            goal="",
        ),
        Line(
            part=PART,
            name=f"CPU of a 304 beside that of a 200, {who}",
            unit="ms/request",
            ours=[each.cpu_ms for each in unchanged],
            reference=[each.cpu_ms for each in ours],
            against="a 200",
            goal="cheaper than a 200",
            at_most=0.999,
        ),
        Line(
            part=PART,
            name=f"p99, {who}",
            unit="ms",
            ours=[each.p99 for each in ours],
            reference=[each.p99 for each in bare],
            against="the bare function",
            goal="",
        ),
        *others(PART, who, "request", ours),
    ]
