"""The CPU of a chunk beside the least that looks into events (``references/relay.py``): each surface, and TLS."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from typing import Any

from cryptography.x509 import IPAddress

from tests.bench.crowd_of_streams import DONE, Crowd, Seen, read_apart
from tests.bench.figures import Line, in_turns
from tests.bench.length import usual
from tests.bench.processes import cpu_seconds
from tests.bench.stage import HOST, Served, Stage
from tests.standins.raw_server import Authority

PART = "chunks"
STREAMS, RAMP = usual((200, 2.0), short=(10, 0.5))
# Long, as answers are, so that the figure is a chunk's and not a call's.
CHUNKS, EVERY = usual(150, short=5), 0.1
TEXT = f"[[stand-in: tokens={CHUNKS} delay={EVERY} clock=yes]]"
USUAL = {"model": "stand-in-small", "stream": True}
TURNS = {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 400}
# surface: path, what is asked, and what the last event has.
CHAT = ("/v1/llm/stream", TURNS, DONE.decode())
SURFACES = {
    "chat": CHAT,
    "Responses": ("/v1/llm/responses", {"input": TEXT, "store": False}, "response.completed"),
    "Messages": ("/v1/llm/messages", TURNS, "message_stop"),
}
AT_MOST = 1.2


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    tokens = [each.access for each in stage.callers(STREAMS)]
    lines: list[Line] = []
    base = {"LLM_BASE_URL": f"{stage.provider.url}/v1"}
    anthropic = {"LLM_PROVIDER": "anthropic", "LLM_BASE_URL": stage.provider.url}
    with stage.reference("relay") as relay:
        with stage.service(**base) as ours:
            for name in ("chat", "Responses"):
                lines += _lines(name, SURFACES[name], ours, relay, tokens, rounds)
        with stage.service(**anthropic) as ours:
            lines += _lines("Messages", SURFACES["Messages"], ours, relay, tokens, rounds)
    with (
        _over_tls(stage) as environ,
        stage.reference("relay", **environ) as relay,
        stage.service(**environ) as ours,
    ):
        lines += _lines("chat over TLS", CHAT, ours, relay, tokens, rounds)
    return lines


@contextmanager
def _over_tls(stage: Stage) -> Iterator[dict[str, str]]:
    """The variables by which a service calls a provider over TLS."""
    authority = Authority(stage.folder)
    certificate = authority.certificate(IPAddress(ip_address(HOST)))
    with stage.provider_over_tls(certificate) as port:
        yield {
            "LLM_BASE_URL": f"https://{HOST}:{port}/v1",
            "LLM_CA_BUNDLE": str(authority.bundle),
        }


def _lines(
    name: str,
    surface: tuple[str, dict[str, Any], str],
    ours: Served,
    relay: Served,
    tokens: list[str],
    rounds: int,
) -> list[Line]:
    ways = {
        "ours": partial(_run, ours, surface, tokens),
        "relay": partial(_run, relay, surface, tokens),
    }
    for way in ways.values():
        way()
    runs = in_turns(ways, rounds=rounds)
    delays = {who: [seen.delay_p50 for _, seen in each] for who, each in runs.items()}
    costs = {who: [cpu for cpu, _ in each] for who, each in runs.items()}
    who = f"{STREAMS} streams, {name}"
    line = partial(Line, part=PART, against="the relay")
    return [
        line(
            name=f"CPU of the web workers, {who}",
            unit="µs/chunk",
            ours=costs["ours"],
            reference=costs["relay"],
            goal=f"at most {AT_MOST} times the relay's",
            at_most=AT_MOST,
        ),
        line(
            name=f"chunk delay p50, {who}",
            unit="ms",
            ours=delays["ours"],
            reference=delays["relay"],
            goal="",
        ),
    ]


def _run(
    served: Served, surface: tuple[str, dict[str, Any], str], tokens: list[str]
) -> tuple[float, Seen]:
    """Microseconds of the web workers a chunk, and what callers saw."""
    path, asked, last = surface
    crowd = Crowd(
        host=HOST,
        port=served.port,
        path=path,
        body=json.dumps({**USUAL, **asked}),
        tokens=tokens,
        streams=STREAMS,
        chunks=CHUNKS,
        ramp=RAMP,
        last=last,
    )
    before = cpu_seconds(served.workers)
    seen = read_apart(crowd)
    spent = cpu_seconds(served.workers) - before
    assert not seen.failures, f"{seen.failures}; see {served.log}"
    return spent * 1e6 / seen.chunks, seen
