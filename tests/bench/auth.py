"""Refreshing, beside simplejwt's own view with rotation and blacklist, and signing in, beside argon2id alone."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import TypeVar

from accounts.models import RefreshToken
from accounts.sessions.refresh_tokens import RefreshSecret
from tests.bench import verifying
from tests.bench.callers import PASSWORD
from tests.bench.crowd_of_streams import percentile
from tests.bench.figures import Line, in_turns
from tests.bench.length import usual
from tests.bench.probes import Probe, probed
from tests.bench.stage import WORKERS, Load, Served, Stage, others
from tests.bench.stock import Stock, running_stock

PART = "auth"
REFRESH, LOGIN = "/v1/auth/refresh", "/v1/auth/login"
CALLERS = usual((1, 16), short=(16,))
SECONDS = usual(4.0, short=1.0)
CHAINS = Path(__file__).with_name("refresh.lua")
KEYED = {"Content-Type": "application/json", "Idempotency-Key": "bench"}
UNKEYED = {"Content-Type": "application/json"}
# More tokens than callers by this many: wrk asks for a first request which it never sends.
SPARE = 2
PEOPLE, SIGNING_IN = 64, 16

T = TypeVar("T")


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    with stage.service() as ours, running_stock(stage) as stock:
        # Two of the ways are ours, and each is once gone to warm up. A chain is not gone on with where wrk stopped.
        chains = sum(callers + SPARE for callers in CALLERS) * (rounds + 1)
        mine = iter(_tokens(stage, 2 * chains))
        theirs = iter([each.refresh for each in stock.people(chains, called="refreshing")])
        lines: list[Line] = []
        for callers in CALLERS:
            ways = {
                "ours": partial(_refresh, stage, ours, mine, callers, UNKEYED),
                "keyed": partial(_refresh, stage, ours, mine, callers, KEYED),
                "stock": partial(_refresh, stage, stock.served, theirs, callers, UNKEYED),
            }
            lines += _refresh_lines(callers, _rounds(ways, rounds))
        return lines + _login_lines(stage, ours, stock, rounds) + _beside(stage, ours, rounds)


def _rounds(ways: dict[str, Callable[..., T]], rounds: int) -> dict[str, list[T]]:
    for way in ways.values():
        way(seconds=1.0)
    return in_turns(ways, rounds=rounds)


def _refresh(
    stage: Stage,
    served: Served,
    tokens: Iterator[str],
    callers: int,
    headers: dict[str, str],
    *,
    seconds: float = SECONDS,
) -> Load:
    """Chains that begin with the next of these tokens."""
    load = stage.load(
        served,
        REFRESH,
        callers=callers,
        seconds=seconds,
        tokens=list(islice(tokens, callers + SPARE)),
        headers=headers,
        script=CHAINS,
    )
    assert load.failed == 0, f"{load.failed} of {load.requests} failed; see {served.log}"
    return load


def _tokens(stage: Stage, number: int) -> list[str]:
    """First tokens of the sessions of so many people."""
    people, now = stage.callers(number), datetime.now(UTC)
    made = [RefreshSecret.new() for _ in people]
    with stage.database.rows():
        RefreshToken.objects.bulk_create(
            RefreshToken(
                id=secret.id,
                user_id=person.id,
                session_id=person.session_id,
                token_hash=secret.hash(),
                issued_at=now,
                expires_at=now + timedelta(days=30),
            )
            for secret, person in zip(made, people, strict=True)
        )
    return [secret.text() for secret in made]


def _refresh_lines(callers: int, loads: dict[str, list[Load]]) -> list[Line]:
    who = f"{callers} caller{'s' if callers > 1 else ''}"
    stock = loads["stock"]
    lines: list[Line] = []
    for how, name in (("ours", "refreshes"), ("keyed", "refreshes with an Idempotency-Key")):
        ours = loads[how]
        lines += [
            Line(
                part=PART,
                name=f"{name}, {who}",
                unit="refreshes/s",
                ours=[each.rps for each in ours],
                reference=[each.rps for each in stock],
                against="simplejwt with rotation and blacklist",
                goal="at least 3 times simplejwt with rotation and blacklist",
                at_least=3.0,
                note="simplejwt's are not single-use under concurrency.",
            ),
            Line(
                part=PART,
                name=f"CPU of the web workers, {name}, {who}",
                unit="ms/refresh",
                ours=[each.cpu_ms for each in ours],
                reference=[each.cpu_ms for each in stock],
                against="simplejwt",
                goal="",
            ),
        ]
    return [*lines, *others(PART, who, "refresh", loads["ours"])]


def _login_lines(stage: Stage, ours: Served, stock: Stock, rounds: int) -> list[Line]:
    people = [_credentials("email", each.email) for each in stage.callers(PEOPLE)]
    strangers = stock.people(PEOPLE, called="signing-in")
    usernames = [_credentials("username", each.username) for each in strangers]
    ways: dict[str, Callable[..., Load | float]] = {
        "ours": partial(_logins, stage, ours, people),
        "argon2id": partial(verifying.rate, WORKERS, seconds=SECONDS),
        "stock": partial(_logins, stage, stock.served, usernames),
    }
    measured = _rounds(ways, rounds)
    loads = {name: [each for each in measured[name] if isinstance(each, Load)] for name in measured}
    mine, theirs = loads["ours"], loads["stock"]
    verified = [each for each in measured["argon2id"] if isinstance(each, float)]
    line = partial(Line, part=PART)
    return [
        line(
            name=f"sign-ins, {SIGNING_IN} callers",
            unit="sign-ins/s",
            ours=[each.rps for each in mine],
            reference=verified,
            against=f"{WORKERS} processes that only verify passwords",
            goal="within 10 % of what argon2id alone allows",
            at_least=0.9,
        ),
        line(
            name=f"sign-ins beside simplejwt's with the same argon2id, {SIGNING_IN} callers",
            unit="sign-ins/s",
            ours=[each.rps for each in mine],
            reference=[each.rps for each in theirs],
            against="simplejwt",
            goal="",
        ),
        line(
            name=f"CPU of the web workers, sign-ins, {SIGNING_IN} callers",
            unit="ms/sign-in",
            ours=[each.cpu_ms for each in mine],
            reference=[each.cpu_ms for each in theirs],
            against="simplejwt",
            goal="",
        ),
        *others(PART, f"{SIGNING_IN} callers", "sign-in", mine),
    ]


def _beside(stage: Stage, ours: Served, rounds: int) -> list[Line]:
    """``license/status`` while nothing else happens, and while so many sign in without a pause."""
    people = [_credentials("email", each.email) for each in stage.callers(PEOPLE)]
    [one] = stage.callers(1)
    quiet: list[float] = []
    busy: list[float] = []
    for _ in range(rounds):
        quiet.append(percentile(probed(ours.port, Probe(token=one.access)), 0.99))
        signing_in = Thread(target=_logins, args=(stage, ours, people))
        signing_in.start()
        busy.append(percentile(probed(ours.port, Probe(token=one.access)), 0.99))
        signing_in.join()
    return [
        Line(
            part=PART,
            name=f"license/status p99 beside {SIGNING_IN} who sign in",
            unit="ms",
            ours=busy,
            reference=quiet,
            against="without them",
            goal="at most 2 times its quiet value",
            at_most=2.0,
        )
    ]


def _logins(
    stage: Stage, served: Served, bodies: Sequence[str], *, seconds: float = SECONDS
) -> Load:
    """Counts sign-ins. A busy machine refuses some callers for now; these have not signed in."""
    load = stage.load(
        served,
        LOGIN,
        callers=SIGNING_IN,
        seconds=seconds,
        method="POST",
        headers=UNKEYED,
        bodies=bodies,
    )
    return replace(load, rps=load.rps * (1 - load.failed / max(load.requests, 1)))


def _credentials(member: str, name: str) -> str:
    return json.dumps({member: name, "password": PASSWORD})
