"""Metrics of requests, queues and dependencies of a process."""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

from django.db import connection
from prometheus_client import Counter, Gauge, Histogram

from config.platform.concurrency import greenlets
from config.platform.edge import health, request_log
from config.platform.edge.ratelimits import failed_logins
from config.platform.observability.metrics import (
    InitialSeries,
    Observer,
    Sample,
    initial_series,
    observers,
    samples,
)
from config.platform.problems.problem import titles

REQUESTS = Counter("shell_requests", "Requests.", ("route", "status"))
REQUEST_SECONDS = Histogram(
    "shell_request_seconds", "Time.", ("route",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
)  # fmt: skip
REFUSALS = Counter("shell_refusals", "Refused requests.", ("code",))
SIGN_INS_REFUSED = Counter("shell_sign_ins_refused", "Wrong passwords.")
# With labels the master, which only forks, has no value; the least would be its 0.
UP = Gauge("shell_dependency_up", "1: it answers.", ("name",), multiprocess_mode="livemin")
WAITING = Gauge("shell_waiting", "Waits now.", ("for_what",), multiprocess_mode="livesum")
WAITS = Counter("shell_waits", "Waits begun.", ("for_what",))
WAIT_SECONDS = Counter("shell_wait_seconds", "Time waited.", ("for_what",))
WAITS_FAILED = Counter("shell_waits_failed", "Waits in vain.", ("for_what",))
PAUSES = Counter("shell_gc_pauses", "Runs of the garbage collector.", ("generation",))
PAUSE_SECONDS = Counter("shell_gc_pause_seconds", "Their time.", ("generation",))

# Statuses of the service's own failures, which alerts look for.
FAILED = (500, 503)
# Runs and total time of the garbage collector since the start of the process.
_pauses: dict[int, int] = {}
_pause_seconds: dict[int, float] = {}
_pause_began = 0.0


def note_request(route: str, status: int, seconds: float) -> None:
    for failed in FAILED:
        # Created before its first failure: ``rate()`` misses the event that creates a series.
        REQUESTS.labels(route, failed)
    REQUESTS.labels(route, status).inc()
    REQUEST_SECONDS.labels(route).observe(seconds)


def note_refusal(refused: request_log.Refused) -> None:
    REFUSALS.labels(refused.problem.code).inc()


def time_pause(phase: str, facts: dict[str, Any]) -> None:
    """Times a pause, which is sampled later: the collector may run while a metric's lock is held."""
    global _pause_began  # noqa: PLW0603 - one run at a time
    if phase == "start":
        _pause_began = time.perf_counter()
    else:
        run, seconds = facts["generation"], time.perf_counter() - _pause_began
        _pauses[run] = _pauses.get(run, 0) + 1
        _pause_seconds[run] = _pause_seconds.get(run, 0.0) + seconds


def begin_refusals() -> None:
    for code in titles():
        REFUSALS.labels(code)


def begin_pauses() -> None:
    for generation in range(len(gc.get_count())):
        PAUSES.labels(generation)
        PAUSE_SECONDS.labels(generation)
    gc.callbacks.append(time_pause)


def dependencies() -> dict[str, float]:
    return {
        name: answer == health.OK
        for name, answer in health.checks().items()
        if answer != health.NOT_CONFIGURED
    }


def of_pool(statistic: str, *, unit: int = 1) -> Callable[[], Mapping[str, float]]:
    """Returns the reader of a statistic of the pool of database connections."""

    def read() -> Mapping[str, float]:
        pool = getattr(connection, "pool", None)
        statistics: dict[str, int] = pool.get_stats() if pool is not None else {}
        return {"database": statistics.get(statistic, 0) / unit}

    return read


observers.add(
    Observer("requests", request_log.answered, note_request),
    Observer("refusals", request_log.refused, note_refusal),
    Observer("refused sign-ins", failed_logins.failures, SIGN_INS_REFUSED.inc),
)
initial_series.add(
    InitialSeries("refusals", begin_refusals),
    InitialSeries("garbage collector", begin_pauses),
)
samples.add(
    Sample("dependencies", UP, dependencies),
    Sample("database waits now", WAITING, of_pool("requests_waiting")),
    Sample("database waits", WAITS, of_pool("requests_queued")),
    Sample("database wait time", WAIT_SECONDS, of_pool("requests_wait_ms", unit=1_000)),
    Sample("database waits that failed", WAITS_FAILED, of_pool("requests_errors")),
    Sample("hashing waits now", WAITING, lambda: {"password_hash": greenlets.sign_ins.waiting}),
    Sample(
        "hashing waits that failed",
        WAITS_FAILED,
        lambda: {"password_hash": greenlets.sign_ins.timed_out},
    ),
    # Copies: the collector may run while they are read.
    Sample("garbage collections", PAUSES, _pauses.copy),
    Sample("garbage collection time", PAUSE_SECONDS, _pause_seconds.copy),
)
