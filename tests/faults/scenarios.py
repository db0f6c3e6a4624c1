"""The matrix: a name, how to break something, for how long, and how to heal it.

A scenario's ``breaking`` is a context: inside it something is ill, and at its end it is well again.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg

from tests.bench.standby import standby
from tests.faults import clock, killing
from tests.faults.clock import at_hours
from tests.faults.disk import filled
from tests.faults.invariants import LONGEST
from tests.faults.stage import PROVIDER_SECONDS, Stage
from tests.faults.traffic import SIGNED_OUT, Traffic
from tests.platform.edge.ratelimits.nodes import HOST, running_cluster
from tests.served.cable import Cable
from tests.tools.owners import SERVICE

Breaking = Callable[[Stage], AbstractContextManager[object]]
SLOW_SECONDS = 5.0
# Whole answers, for which two providers in turn have all of LLM_READ_TIMEOUT.
WHOLE = dict.fromkeys(("complete", "messages", "responses"), LONGEST + 2 * PROVIDER_SECONDS)
# The scenario without a fault, for the usual times.
WELL = "nothing"
# Longer than a statement and what it waits for: nobody waits for all of a frozen server.
FROZEN_SECONDS = 26.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """``how`` is a sentence for the table. ``environ``: the variables of a service of its own.

    ``act`` is done in place of a wait of so many seconds, where a scenario is a course of its own; it says what it did.
    """

    name: str
    how: str
    breaking: Breaking | None = None
    seconds: float = 10.0
    act: Callable[[Stage, Traffic], str] | None = None
    environ: Callable[[Stage], AbstractContextManager[Mapping[str, str]]] | None = None
    # Codes of a 401 that are right here.
    expired: frozenset[str] = field(default_factory=frozenset)
    # Kinds that wait longer than others here, and for how long.
    patience: Mapping[str, float] = field(default_factory=dict)
    # The reason why the scenario cannot run on this stage; empty where it can.
    skipped: Callable[[Stage], str] = lambda _: ""


# --- PostgreSQL ---


@contextmanager
def stopped(stage: Stage) -> Iterator[None]:
    stage.postgres.stop()
    try:
        yield
    finally:
        stage.keep_going()


@contextmanager
def restarted(stage: Stage) -> Iterator[None]:
    stage.postgres.stop()
    stage.keep_going()
    yield


@contextmanager
def killed(stage: Stage) -> Iterator[None]:
    stage.postgres.kill()
    stage.keep_going()
    yield


@contextmanager
def out_of_connections(stage: Stage) -> Iterator[None]:
    """One is left for all processes of the service together."""
    stage.admin(f"ALTER ROLE {SERVICE} CONNECTION LIMIT 1")
    stage.terminate_sessions()
    try:
        yield
    finally:
        stage.admin(f"ALTER ROLE {SERVICE} CONNECTION LIMIT -1")


@contextmanager
def read_only(stage: Stage) -> Iterator[None]:
    """As a server is to which a pooler leads during a failover."""
    stage.admin(f"ALTER ROLE {SERVICE} SET default_transaction_read_only = on")
    stage.terminate_sessions()
    try:
        yield
    finally:
        stage.admin(f"ALTER ROLE {SERVICE} RESET default_transaction_read_only")
        stage.terminate_sessions()


@contextmanager
def disk_full(stage: Stage) -> Iterator[None]:
    assert stage.disk is not None
    with filled(stage.disk):
        yield
    # It may have ended, and only a supervisor starts it then.
    stage.keep_going()


def fail_over(stage: Stage, traffic: Traffic) -> str:
    """The primary dies, and the replica that had to acknowledge each commit takes its place."""
    folder = Path(stage.folder) / "replica"
    folder.mkdir()
    replica = stage.servers.enter_context(standby(folder, stage.postgres.url))
    stage.admin("ALTER SYSTEM SET synchronous_standby_names = '*'")
    stage.admin("SELECT pg_reload_conf()")
    killing.rest(8.0)
    stage.postgres.kill()
    with psycopg.connect(replica.server.superuser_url, autocommit=True) as server:
        server.execute("SELECT pg_promote()")
    stage.move_to(replica.child, replica.server)
    return "the replica was promoted at once, and the address led to it"


# --- what hangs on cables ---


@contextmanager
def pulled(*names: str, stage: Stage) -> Iterator[None]:
    for name in names:
        stage.cables[name].pull()
    try:
        yield
    finally:
        for name in names:
            stage.cables[name].put_back()


@contextmanager
def ill(*names: str, stage: Stage, how: Callable[[Cable, bool], None]) -> Iterator[None]:
    for name in names:
        how(stage.cables[name], True)
    try:
        yield
    finally:
        for name in names:
            how(stage.cables[name], False)


def _slow(cable: Cable, is_ill: bool) -> None:
    cable.delay = SLOW_SECONDS if is_ill else 0.0


def _drip(cable: Cable, is_ill: bool) -> None:
    cable.drips = is_ill


def _reset(cable: Cable, is_ill: bool) -> None:
    cable.resets = is_ill
    cable.cut()


def _freeze(cable: Cable, is_ill: bool) -> None:
    if is_ill:
        cable.freeze()
    else:
        cable.thaw()


WAYS: Mapping[str, tuple[str, Callable[..., AbstractContextManager[None]]]] = {
    "down": ("refuses connections", pulled),
    "slow": (f"answers {SLOW_SECONDS:.0f} s late", partial(ill, how=_slow)),
    "dripping": ("answers a byte a second", partial(ill, how=_drip)),
    "resetting": ("resets each connection when asked", partial(ill, how=_reset)),
    "silent": ("takes all and answers nothing", partial(ill, how=_freeze)),
}


def of_cables(name: str, what: str, way: str, *cables: str, seconds: float = 12.0) -> Scenario:
    said, breaking = WAYS[way]

    def begin(stage: Stage) -> AbstractContextManager[object]:
        return breaking(*cables, stage=stage)

    return Scenario(
        name=f"{name}-{way}",
        how=f"{what} {said}",
        breaking=begin,
        seconds=seconds,
        patience=WHOLE if way == "silent" else {},
    )


# --- Redis ---


@contextmanager
def redis_stopped(stage: Stage) -> Iterator[None]:
    stage.redis.kill()
    try:
        yield
    finally:
        stage.redis.start()


@contextmanager
def redis_flushed(stage: Stage) -> Iterator[None]:
    with stage.redis.client() as client:
        client.flushall()
    yield


@contextmanager
def on_a_cluster(stage: Stage) -> Iterator[Mapping[str, str]]:
    folder = stage.folder / "cluster"
    folder.mkdir()
    with running_cluster(folder) as nodes:
        stage.nodes = nodes
        yield {"CACHE_URL": "redis+cluster://" + ",".join(f"{HOST}:{n.port}" for n in nodes[:2])}


@contextmanager
def node_lost(stage: Stage) -> Iterator[None]:
    stage.nodes[2].kill()
    yield


@contextmanager
def clocked(stage: Stage) -> Iterator[Mapping[str, str]]:
    yield clock.environ(stage.folder)


def _without_library(stage: Stage) -> str:
    return "" if clock.library() else "libfaketime is not installed"


# An hour of a token, and half an hour of a console's session without use.
EXPIRED = frozenset({"access_token_expired", SIGNED_OUT})

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(name=WELL, how="All is well", breaking=lambda _: nullcontext()),
    Scenario(
        name="postgres-frozen",
        how="PostgreSQL takes bytes and answers nothing (SIGSTOP)",
        breaking=lambda stage: stage.postgres.frozen(),
        seconds=FROZEN_SECONDS,
    ),
    Scenario(name="postgres-stopped", how="PostgreSQL is stopped", breaking=stopped),
    Scenario(
        name="postgres-restarted", how="PostgreSQL is restarted", breaking=restarted, seconds=6
    ),
    Scenario(
        name="postgres-killed",
        how="PostgreSQL is killed, and recovers",
        breaking=killed,
        seconds=10,
    ),
    Scenario(
        name="postgres-out-of-connections",
        how="PostgreSQL has one connection left",
        breaking=out_of_connections,
    ),
    Scenario(name="postgres-read-only", how="PostgreSQL takes no writes", breaking=read_only),
    Scenario(
        name="postgres-disk-full",
        how="PostgreSQL's disk is full",
        breaking=disk_full,
        skipped=lambda stage: "" if stage.disk else "only root can mount a small disk",
    ),
    Scenario(
        name="web-killed-settling",
        how="Web is killed at each step of a call",
        act=killing.settling,
    ),
    Scenario(
        name="web-killed-rotating",
        how="Web is killed at each step of a refresh",
        act=killing.rotating,
    ),
    Scenario(
        name="web-killed-publishing",
        how="Web is killed at each step of a publish",
        act=killing.publishing,
    ),
    Scenario(
        name="worker-killed-mailing",
        how="The worker is killed at each step of a mail",
        act=killing.mailing,
    ),
    Scenario(
        name="worker-killed-at-night",
        how="The worker is killed again and again in one night",
        act=killing.at_night,
    ),
    Scenario(name="redis-stopped", how="Redis is killed", breaking=redis_stopped),
    Scenario(
        name="redis-frozen",
        how="Redis takes bytes and answers nothing",
        breaking=lambda stage: stage.redis.frozen(),
    ),
    Scenario(name="redis-flushed", how="Redis forgets all", breaking=redis_flushed, seconds=8),
    Scenario(
        name="redis-node-lost",
        how="A node of three of a Redis cluster is killed",
        breaking=node_lost,
        environ=on_a_cluster,
        seconds=8,
    ),
    of_cables("provider", "One of two providers", "down", "provider"),
    of_cables("provider", "One of two providers", "silent", "provider", seconds=16),
    of_cables("providers", "Each provider", "down", "provider", "second"),
    of_cables("providers", "Each provider", "slow", "provider", "second", seconds=14),
    of_cables("providers", "Each provider", "resetting", "provider", "second"),
    of_cables("providers", "Each provider", "silent", "provider", "second", seconds=16),
    of_cables("storage", "Storage", "down", "storage"),
    of_cables("storage", "Storage", "slow", "storage"),
    of_cables("storage", "Storage", "dripping", "storage", seconds=14),
    of_cables("cdn", "The CDN", "down", "cdn"),
    of_cables("cdn", "The CDN", "slow", "cdn"),
    of_cables("cdn", "The CDN", "dripping", "cdn", seconds=14),
    of_cables("mail", "The mail server", "down", "mail"),
    of_cables("mail", "The mail server", "slow", "mail"),
    of_cables("mail", "The mail server", "dripping", "mail", seconds=14),
    of_cables("oauth", "The OAuth server", "down", "oauth"),
    of_cables("oauth", "The OAuth server", "slow", "oauth"),
    of_cables("oauth", "The OAuth server", "dripping", "oauth", seconds=14),
    *(
        Scenario(
            name=f"stripe-{way}",
            how=f"Stripe {WAYS[way][0]}, while a night asks it",
            act=partial(killing.sync, ill=WAYS[way][1]),
        )
        for way in ("down", "slow", "dripping")
    ),
    Scenario(
        name="clock-ahead",
        how="The clock of the service jumps an hour ahead",
        breaking=at_hours(1),
        environ=clocked,
        skipped=_without_library,
        expired=EXPIRED,
    ),
    Scenario(
        name="clock-back",
        how="The clock of the service jumps an hour back",
        breaking=at_hours(-1),
        environ=clocked,
        skipped=_without_library,
    ),
    # The last: from then on the database is another server.
    Scenario(
        name="postgres-failed-over",
        how="PostgreSQL dies, and its synchronous replica takes over",
        act=fail_over,
    ),
)
BY_NAME = {each.name: each for each in SCENARIOS}
SHORT = ("postgres-restarted", "postgres-read-only", "redis-stopped", "provider-down")
