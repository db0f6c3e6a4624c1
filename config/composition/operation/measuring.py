"""Registration of the metrics with the apps' facts.

Facts that pass are noted as they pass; what stands (pools, gates, calls under way) is looked at every few seconds. The
queue and the nights are asked of the database by the worker, at each scrape.
"""

import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any, ParamSpec

from django.conf import settings
from django.db import Error, connection
from django.db.models import Count, Min, Q
from django.utils import timezone
from procrastinate.contrib.django.models import ProcrastinateJob
from prometheus_client import REGISTRY, Counter, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.composition.operation import nightly
from config.platform.db.connections import release_connection
from config.platform.edge import health, request_log
from config.platform.edge.ratelimits import failed_logins
from config.platform.observability import metrics
from config.platform.observability.metrics_serving import VARIABLE, reserve
from config.platform.problems.problem import titles
from config.platform.runtime import greenlets, serving
from llmproxy.calls import call as calls
from llmproxy.calls import outbox, watch
from llmproxy.calls.call import Call
from llmproxy.catalogue.choosing import surfaces_of
from llmproxy.dialects import ends
from llmproxy.models import Route
from usage.models import UsageRecord
from usage.settlement import Settlement

log = logging.getLogger(__name__)

EVERY_SECONDS = 5.0
# Pairs of model and provider with series of their own in a process: its files have room for these.
MOST_PAIRS = 64
# Statuses of failures of our own, which alerts look for.
FAILED = (500, 503)
KINDS = ("input", "output", "cached_input", "cache_write", "reasoning")
P = ParamSpec("P")
_pairs: set[tuple[str, str]] = set()
# Totals at the last look, and the garbage collector's time since.
_totals: dict[Counter, float] = {}
_pauses: dict[int, int] = {}
_pause_seconds: dict[int, float] = {}
_pause_began = 0.0
_is_off = threading.Event()
_are_routes_begun = threading.Event()


def register() -> None:
    """Starts noting every fact in this process and those forked from it."""
    request_log.answered.append(note_request)
    request_log.refused.append(note_refusal)
    failed_logins.failures.append(unfailing(metrics.SIGN_INS_REFUSED.inc))
    calls.ended.append(note_call)
    ends.unknown.append(note_unknown_end)
    serving.started.append(start)
    serving.worker_started.extend((start, serve_worker))


def unfailing(note: Callable[P, object]) -> Callable[P, None]:
    """A number that cannot be noted is no reason to fail a request."""

    @wraps(note)
    def noted(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            if not _is_off.is_set():
                note(*args, **kwargs)
        except Exception:
            log.warning("metric_not_noted", exc_info=True)

    return noted


@unfailing
def note_request(route: str, status: int, seconds: float) -> None:
    for failed in FAILED:
        # There before its first failure: no rate sees a series begin.
        metrics.REQUESTS.labels(route, failed)
    metrics.REQUESTS.labels(route, status).inc()
    metrics.REQUEST_SECONDS.labels(route).observe(seconds)


@unfailing
def note_refusal(refused: request_log.Refused) -> None:
    metrics.REFUSALS.labels(refused.problem.code).inc()


@unfailing
def note_call(call: Call, settlement: Settlement) -> None:
    """Notes a call by its settlement, which every call has once."""
    surface, spent = call.admission.request.surface, settlement.spent
    pair = call.admission.model.name, settlement.asked.provider
    if not _is_kept(pair):
        pair = "other", "other"
    asked = "embeddings" if surface == "embeddings" else "chat", pair[1], pair[0]
    metrics.CALLS.labels(surface.value, *pair, settlement.end.value).inc()
    metrics.DURATION.labels(*asked).observe(time.monotonic() - call.began)
    cost = settlement.asked.prices.cost(spent) or 0
    for each in call.abandoned:
        metrics.ABANDONED.labels(each.provider).inc()
        cost += each.cost or 0
    metrics.COST.labels(*pair).inc(cost / 1_000_000)
    for kind in KINDS:
        if number := getattr(spent, kind):
            metrics.TOKENS.labels(*asked, kind).observe(number)
    meter = call.attempt and call.attempt.meter
    if meter and meter.first_delta_at is not None and meter.delta_at is not None:
        metrics.FIRST_CHUNK.labels(*asked).observe(meter.first_delta_at - call.began)
        if meter.deltas > 1:
            mean = (meter.delta_at - meter.first_delta_at) / (meter.deltas - 1)
            metrics.PER_CHUNK.labels(*asked).observe(mean)


@unfailing
def note_unknown_end(provider: str) -> None:
    metrics.UNKNOWN_ENDS.labels(provider).inc()


def start() -> None:
    """Samples the gauges of this process every few seconds, for its life."""
    try:
        if folder := os.environ.get(VARIABLE):
            reserve(Path(folder), os.getpid())
    except OSError:
        log.warning("metrics_without_room", exc_info=True)
        _is_off.set()
        return
    unfailing(begin_at_zero)()
    gc.callbacks.append(time_pause)
    threading.Thread(target=_look_for_ever, name="metrics", daemon=True).start()


def begin_at_zero() -> None:
    """Begins the series of known labels, before their first event: no rate sees a series begin."""
    for code in titles():
        metrics.REFUSALS.labels(code)
    for generation in range(len(gc.get_count())):
        metrics.PAUSES.labels(generation)
        metrics.PAUSE_SECONDS.labels(generation)


def begin_routes() -> None:
    """Begins the series of the calls that the catalogue makes possible, as far as there is room for them."""
    try:
        routes = list(Route.objects.select_related("model", "provider").order_by("order", "pk"))
    finally:
        release_connection()
    for route in routes:
        pair = route.model.name, route.provider.name
        if route.model.is_on and route.provider.is_on and _is_kept(pair):
            metrics.ABANDONED.labels(pair[1])
            metrics.COST.labels(*pair)
            for surface, end in product(surfaces_of(route), UsageRecord.End.values):
                metrics.CALLS.labels(surface.value, *pair, end)
    _are_routes_begun.set()


def _is_kept(pair: tuple[str, str]) -> bool:
    """Returns whether a model and a provider have series of their own; the first ones have, and keep them."""
    if pair not in _pairs and len(_pairs) >= MOST_PAIRS:
        return False
    _pairs.add(pair)
    return True


def time_pause(phase: str, facts: dict[str, Any]) -> None:
    """Noted later: the collector may run while a number is written, whose lock is held."""
    global _pause_began  # noqa: PLW0603 - one run at a time
    if phase == "start":
        _pause_began = time.perf_counter()
    else:
        run, seconds = facts["generation"], time.perf_counter() - _pause_began
        _pauses[run] = _pauses.get(run, 0) + 1
        _pause_seconds[run] = _pause_seconds.get(run, 0.0) + seconds


def look() -> None:
    """Sets the gauges of this process."""
    for kind, number in watch.under_way().items():
        metrics.OPEN.labels(kind).set(number)
    for name, answer in health.checks().items():
        if answer != health.NOT_CONFIGURED:
            metrics.UP.labels(name).set(answer == health.OK)
    pool = getattr(connection, "pool", None)
    stats: dict[str, int] = pool.get_stats() if pool is not None else {}
    metrics.WAITING.labels("database").set(stats.get("requests_waiting", 0))
    grow(metrics.WAITS.labels("database"), stats.get("requests_queued", 0))
    grow(metrics.WAIT_SECONDS.labels("database"), stats.get("requests_wait_ms", 0) / 1_000)
    grow(metrics.WAITS_FAILED.labels("database"), stats.get("requests_errors", 0))
    metrics.WAITING.labels("settlement").set(outbox.pending())
    metrics.WAITING.labels("password_hash").set(greenlets.sign_ins.waiting)
    grow(metrics.WAITS_FAILED.labels("password_hash"), greenlets.sign_ins.timed_out)
    for generation, pauses in list(_pauses.items()):
        grow(metrics.PAUSES.labels(generation), pauses)
        grow(metrics.PAUSE_SECONDS.labels(generation), _pause_seconds[generation])


def grow(counter: Counter, total: float) -> None:
    """Adds the growth of a total, which restarts at zero with a new pool."""
    counter.inc(max(0, total - _totals.get(counter, 0)))
    _totals[counter] = total


def _look_for_ever() -> None:
    pause = threading.Event()
    while True:
        unfailing(look)()
        if not _are_routes_begun.is_set():
            unfailing(begin_routes)()
        pause.wait(EVERY_SECONDS)


class Standing(Collector):
    """The queue, the nights and the calls that no process settles, as the database has them at a scrape."""

    def collect(self) -> Iterator[Metric]:
        try:
            yield from _standing()
        except Error:
            # Whether the database answers is a metric of its own.
            log.warning("metric_not_noted", exc_info=True)
        finally:
            release_connection()


def _standing() -> Iterator[Metric]:
    now = timezone.now()
    at_once = Q(scheduled_at=None)
    due = ProcrastinateJob.objects.filter(at_once | Q(scheduled_at__lte=now), status="todo")
    # A job due at once has no scheduled time; it waits since its first event.
    found = due.aggregate(
        number=Count("pk", distinct=True),
        planned=Min("scheduled_at"),
        queued=Min("procrastinateevent__at", filter=at_once),
    )
    since = min(filter(None, (found["planned"], found["queued"])), default=now)
    age = max(0.0, (now - since).total_seconds())
    failed = ProcrastinateJob.objects.filter(status="failed").count()
    overdue = UsageRecord.objects.abandoned(at=now).count()
    yield GaugeMetricFamily("shell_jobs_due", "Jobs that wait.", found["number"])
    yield GaugeMetricFamily("shell_jobs_oldest_due_seconds", "Age.", age)
    yield GaugeMetricFamily("shell_jobs_failed", "Jobs that failed for good.", failed)
    yield GaugeMetricFamily("shell_calls_overdue", "Calls that nobody settles.", overdue)
    nights = GaugeMetricFamily("shell_night_done_timestamp_seconds", "Last.", labels=["task"])
    for run in nightly.last_runs():
        if run.done_at is not None:
            nights.add_metric([run.job], run.done_at.timestamp())
    yield nights


def serve_worker() -> None:
    """Serves this worker's metrics; a port that is taken fails the start."""
    if settings.WORKER_METRICS_PORT is not None:
        start_http_server(settings.WORKER_METRICS_PORT, addr=settings.HOST)
        REGISTRY.register(Standing())
