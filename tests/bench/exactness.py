"""Whether hosts that know nothing of each other count as one: caps, rate limits and sessions, asked of all at once."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from itertools import chain
from threading import Barrier
from typing import Any
from uuid import uuid4

from django.db.models import Count, Q, Sum
from django.utils import timezone

from tests.bench.callers import CAPS, Caller
from tests.bench.figures import Line
from tests.bench.stage import HOST, Served, Stage
from tests.bench.streams import CHUNKS
from tests.served.shell import Shell
from usage.models import MonthlyUsage, UsageRecord

# Each of these people asks every host for as many calls as the cap allows in all.
CAPPED, CALLS = 8, 40
# A call costs exactly its max_tokens, so that a cap holds a whole number of calls.
ASKED = {"role": "user", "content": f"[[stand-in: tokens={CHUNKS}]]"}
BODY = json.dumps({"messages": [ASKED], "max_tokens": CHUNKS})
TELEMETRY_LIMIT = 100
SESSIONS = 20


def counted_as_one(stage: Stage, part: str, hosts: Sequence[Served], *, rounds: int) -> list[Line]:
    """Lines that are all nothing when no host counts for itself."""
    asked = (_caps, _limits, _sessions)
    figures = [
        dict(chain.from_iterable(each(stage, hosts).items() for each in asked))
        for _ in range(rounds)
    ]
    line = partial(Line, part=part, goal="none", at_most=0.0)
    return [
        line(
            name=f"{name}, {len(hosts)} hosts",
            unit=unit,
            ours=[each[name, unit] for each in figures],
        )
        for name, unit in figures[0]
    ]


def _caps(stage: Stage, hosts: Sequence[Served]) -> dict[tuple[str, str], float]:
    """People whose cap has room for so many calls ask each host for all of them; then the ledger is added up."""
    cap = CALLS * CHUNKS
    people = stage.callers(CAPPED, caps={**CAPS, "monthly_output": cap})
    answers = _at_once(
        partial(_ask, host, person, "/v1/llm/complete", [BODY] * CALLS)
        for person in people
        for host in hosts
    )
    unlike = answers.keys() - {(200, ""), (429, "monthly_cap_exceeded"), (429, "cap_reserved")}
    assert not unlike, unlike
    answered = answers[200, ""]
    ids = [each.id for each in people]
    with stage.database.rows():
        ledger = UsageRecord.objects.filter(user__in=ids).aggregate(
            settled=Count("id", filter=Q(state="settled")),
            unsettled=Count("id", filter=~Q(state="settled")),
            output=Sum("output_tokens"),
        )
        totals = list(
            MonthlyUsage.objects.filter(user__in=ids).values_list("output_used", "output_reserved")
        )
    return {
        ("caps: tokens over or short of the cap", "tokens"): float(
            sum(abs(used - cap) for used, _ in totals)
        ),
        ("caps: calls answered and not settled, or settled and not answered", "calls"): float(
            abs(ledger["settled"] - answered) + ledger["unsettled"]
        ),
        ("caps: tokens of the ledger that totals do not have, or still reserved", "tokens"): float(
            abs(ledger["output"] - sum(used for used, _ in totals))
            + sum(reserved for _, reserved in totals)
        ),
    }


def _limits(stage: Stage, hosts: Sequence[Served]) -> dict[tuple[str, str], float]:
    """One person sends each host as many batches as the rate limit allows in all."""
    [person] = stage.callers(1)
    bodies = [json.dumps({"events": [_event()]}) for _ in range(TELEMETRY_LIMIT)]
    answers = _at_once(partial(_ask, host, person, "/v1/telemetry", bodies) for host in hosts)
    assert answers.keys() <= {(202, ""), (429, "rate_limited")}, answers
    name = "rate limits: requests more or fewer than allowed"
    return {(name, "requests"): float(abs(answers[202, ""] - TELEMETRY_LIMIT))}


def _sessions(stage: Stage, hosts: Sequence[Served]) -> dict[tuple[str, str], float]:
    """One refresh token to each host at the same moment; and what one host has ended, asked of the others."""
    twice = believed = 0
    for person in stage.callers(SESSIONS):
        token = stage.shell(hosts[0], person).refresh_token
        statuses = _at_once(partial(_refresh, host, token) for host in hosts)
        twice += max(0, statuses[200] - 1)
        shell = stage.shell(hosts[0], person)
        assert shell.post("/v1/auth/logout", {"refresh": shell.refresh_token}).status_code == 204
        for host in hosts[1:]:
            elsewhere = Shell(host.url)
            elsewhere.access = shell.access
            believed += elsewhere.get("/v1/license/status").status_code != 401
    return {
        ("sessions: refresh tokens taken by more than one", "tokens"): float(twice),
        ("sessions: ended by one, believed by another", "sessions"): float(believed),
    }


def _at_once(calls: Any) -> "Counter[Any]":
    """Begun at the same moment; the sum of what they count."""
    ready: list[Callable[[], Counter[Any]]] = list(calls)
    barrier = Barrier(len(ready))

    def begin(call: Callable[[], "Counter[Any]"]) -> "Counter[Any]":
        barrier.wait(30)
        return call()

    with ThreadPoolExecutor(len(ready)) as pool:
        return sum(pool.map(begin, ready), Counter())


def _ask(
    host: Served, person: Caller, path: str, bodies: Sequence[str]
) -> "Counter[tuple[int, str]]":
    """How often there was which status, and which problem."""
    connection = HTTPConnection(HOST, host.port, timeout=30)
    headers = {"Authorization": f"Bearer {person.access}", "Content-Type": "application/json"}
    answers: Counter[tuple[int, str]] = Counter()
    for body in bodies:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        answers[response.status, answer["code"] if response.status >= 400 else ""] += 1
    connection.close()
    return answers


def _refresh(host: Served, token: str) -> "Counter[int]":
    return Counter([Shell(host.url).refresh(token).status_code])


def _event() -> dict[str, Any]:
    return {
        "id": str(uuid4()),
        "name": "document.opened",
        "occurred_at": timezone.now().isoformat(),
        "properties": {},
        "app": "sheets",
        "shell_version": "1.2.3",
    }
