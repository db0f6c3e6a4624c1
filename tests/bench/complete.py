"""One-shot model calls with hard caps, beside proxies with and without accounts, and beside the provider itself."""

import json
from functools import partial

from llmproxy.models import LanguageModel
from tests.bench import large_answers
from tests.bench.figures import Line, in_turns
from tests.bench.length import usual
from tests.bench.stage import Load, Served, Stage, others

PART = "complete"
CALLERS = usual((1, 16, 64), short=(16,))
PEOPLE = 64
LARGE = usual(20, short=2)
BODY = json.dumps(
    {
        "model": "stand-in-small",
        "messages": [{"role": "user", "content": "What do we know about this?"}],
    }
)
HEADERS = {"Content-Type": "application/json"}


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    tokens = [each.access for each in stage.callers(PEOPLE)]
    with (
        stage.service() as ours,
        stage.reference("proxy") as proxy,
        stage.reference("ledger") as ledger,
    ):
        served = {"ours": ours, "proxy": proxy, "ledger": ledger, "provider": stage.provider}
        lines: list[Line] = []
        for callers in CALLERS:
            ways = {
                name: partial(_load, stage, each, callers, tokens) for name, each in served.items()
            }
            for way in ways.values():
                way(seconds=1)
            lines += _lines(callers, in_turns(ways, rounds=rounds))
    return [*lines, *_large(stage, rounds=rounds)]


def _large(stage: Stage, *, rounds: int) -> list[Line]:
    """Large embeddings of one person at once, and what others notice."""
    one, other = stage.callers(2)
    with stage.database.rows():
        LanguageModel.objects.get_or_create(
            name=large_answers.MODEL, defaults={"provider_name": large_answers.MODEL}
        )
    with large_answers.provider() as address, stage.service(LLM_BASE_URL=address) as ours:
        seen = [
            large_answers.ask_at_once(
                port=ours.port,
                workers=ours.workers,
                token=one.access,
                other=other.access,
                number=LARGE,
            )
            for _ in range(rounds)
        ]
    who = f"{LARGE} embeddings of 59 MB at once"
    failed = [float(LARGE - each.codes.get(200, 0)) for each in seen]
    longest = [1_000 * each.longest for each in seen]
    most = [each.most_mib for each in seen]
    line = partial(Line, part=PART)
    return [
        line(name=f"failures, {who}", unit="calls", ours=failed, goal="none", at_most=0.0),
        line(
            name=f"longest status of another person, {who}",
            unit="ms",
            ours=longest,
            goal="at most 0.5 s",
            at_most=500.0,
        ),
        line(
            name=f"largest process, {who}",
            unit="MiB",
            ours=most,
            goal="at most 700 MiB",
            at_most=700.0,
        ),
    ]


def _load(
    stage: Stage, served: Served, callers: int, tokens: list[str], seconds: float = 4
) -> Load:
    path = "/v1/chat/completions" if served is stage.provider else "/v1/llm/complete"
    load = stage.load(
        served,
        path,
        callers=callers,
        seconds=seconds,
        method="POST",
        body=BODY,
        headers=HEADERS,
        tokens=tokens,
    )
    assert load.failed == 0, f"{load.failed} of {load.requests} calls failed; see {served.log}"
    return load


def _lines(callers: int, loads: dict[str, list[Load]]) -> list[Line]:
    who = f"{callers} caller{'s' if callers > 1 else ''}"
    ours, proxy, provider = loads["ours"], loads["proxy"], loads["provider"]
    ledger = loads["ledger"]
    line = partial(Line, part=PART)
    lines = [
        line(
            name=f"calls, {who}",
            unit="calls/s",
            ours=[each.rps for each in ours],
            reference=[each.rps for each in proxy],
            against="the proxy",
            goal="at least 0.6 of a proxy without accounting",
            at_least=0.6,
        ),
        line(
            name=f"calls beside the ledger's, {who}",
            unit="calls/s",
            ours=[each.rps for each in ours],
            reference=[each.rps for each in ledger],
            against="the ledger",
            goal="",
        ),
        line(
            name=f"CPU of the web workers, {who}",
            unit="ms/call",
            ours=[each.cpu_ms for each in ours],
            goal="at most 2 ms",
            at_most=2.0,
        ),
        line(
            name=f"CPU beside the proxy's, {who}",
            unit="ms/call",
            ours=[each.cpu_ms for each in ours],
            reference=[each.cpu_ms for each in proxy],
            against="the proxy",
            goal="",
        ),
        line(
            name=f"CPU beside the ledger's, {who}",
            unit="ms/call",
            ours=[each.cpu_ms for each in ours],
            reference=[each.cpu_ms for each in ledger],
            against="the ledger",
            goal="",
        ),
        line(
            name=f"p99, {who}",
            unit="ms",
            ours=[each.p99 for each in ours],
            reference=[each.p99 for each in proxy],
            against="the proxy",
            goal="",
        ),
        line(
            name=f"provider alone, {who}",
            unit="calls/s",
            ours=[each.rps for each in provider],
            goal="",
        ),
        *others(PART, who, "call", ours),
    ]
    if callers == 1:
        added = [mine.p50 - direct.p50 for mine, direct in zip(ours, provider, strict=True)]
        lines.append(
            line(
                name=f"added to the provider's p50, {who}",
                unit="ms",
                ours=added,
                goal="at most 3 ms",
                at_most=3.0,
            )
        )
    return lines
