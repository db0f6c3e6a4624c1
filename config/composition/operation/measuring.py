"""Collection of the metrics that apps declare.

Events are counted as they happen, and gauges of a process are sampled every few seconds. The worker reads gauges of the
database at each scrape.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from django.apps import apps
from django.conf import settings
from django.db import Error
from django.utils import timezone
from prometheus_client import REGISTRY, Counter, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.platform.db.connections import release_connection
from config.platform.declarations import DeclaringApp
from config.platform.observability import metrics
from config.platform.observability.metrics_serving import VARIABLE, reserve
from config.platform.runtime import serving

log = logging.getLogger(__name__)

EVERY_SECONDS = 5.0
P = ParamSpec("P")
# Names of the initial series that exist, and totals at the last sample.
_begun: set[str] = set()
_totals: dict[Counter, float] = {}
_is_off = threading.Event()


def register() -> None:
    """Starts the collection of every metric in this process and those forked from it."""
    load()
    for each in metrics.observers:
        each.events.append(unfailing(each.observe))
    serving.started.append(start)
    serving.worker_started.extend((start, serve_worker))


def load() -> None:
    """Loads the declarations of every app."""
    for app in apps.get_app_configs():
        if isinstance(app, DeclaringApp):
            app.load(app.metrics)


def unfailing(observe: Callable[P, object]) -> Callable[P, None]:
    """Wraps a function so that an error in it is logged: a metric must not fail a request."""

    @wraps(observe)
    def observed(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            if not _is_off.is_set():
                observe(*args, **kwargs)
        except Exception:
            log.warning("metric_not_noted", exc_info=True)

    return observed


def start() -> None:
    """Samples the gauges of this process every few seconds until it exits."""
    try:
        if folder := os.environ.get(VARIABLE):
            reserve(Path(folder), os.getpid())
    except OSError:
        log.warning("metrics_without_room", exc_info=True)
        _is_off.set()
        return
    threading.Thread(target=_sample_for_ever, name="metrics", daemon=True).start()


@unfailing
def begin(series: metrics.InitialSeries) -> None:
    try:
        series.begin()
    finally:
        release_connection()
    _begun.add(series.name)


@unfailing
def sample(declared: metrics.Sample) -> None:
    for label, value in declared.read().items():
        metric = declared.metric.labels(label)
        if isinstance(metric, Counter):
            grow(metric, value)
        else:
            metric.set(value)


def grow(counter: Counter, total: float) -> None:
    """Adds the increase of a total, which restarts at zero with a new pool."""
    counter.inc(max(0, total - _totals.get(counter, 0)))
    _totals[counter] = total


def _sample_for_ever() -> None:
    pause = threading.Event()
    while True:
        for series in metrics.initial_series:
            if series.name not in _begun:
                begin(series)
        for each in metrics.samples:
            sample(each)
        pause.wait(EVERY_SECONDS)


class DatabaseGauges(Collector):
    """The gauges that are read from the database at a scrape."""

    def collect(self) -> Iterator[Metric]:
        try:
            now = timezone.now()
            for each in metrics.database_gauges:
                yield family_of(each, each.read(now))
        except Error:
            # Another metric reports whether the database answers.
            log.warning("metric_not_noted", exc_info=True)
        finally:
            release_connection()


def family_of(
    declared: metrics.DatabaseGauge, read: float | Mapping[str, float]
) -> GaugeMetricFamily:
    if not isinstance(read, Mapping):
        return GaugeMetricFamily(declared.name, declared.documentation, read)
    family = GaugeMetricFamily(declared.name, declared.documentation, labels=declared.labels)
    for label, value in read.items():
        family.add_metric([label], value)
    return family


def serve_worker() -> None:
    """Serves this worker's metrics; a port that is taken fails the start."""
    if settings.WORKER_METRICS_PORT is not None:
        start_http_server(settings.WORKER_METRICS_PORT, addr=settings.HOST)
        REGISTRY.register(DatabaseGauges())
