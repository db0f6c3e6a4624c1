"""Types of metrics and of their collection, which each app declares beside the code that they measure.

A module of declarations is loaded only where a port for metrics is set (``DeclaringApp.metrics``). Counters, gauges and
histograms are the library's own: name, help and labels. The values of labels are bounded by the code and the catalogue,
and none names a person. Names follow OpenTelemetry's conventions for generative AI where these have one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from prometheus_client import Counter, Gauge

from config.platform.declarations import Declarations

Hook = TypeVar("Hook", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Observer(Generic[Hook]):
    """A function that counts each event of a kind as it happens; it must be quick."""

    name: str
    # The hook that calls it.
    events: list[Hook]
    observe: Hook


@dataclass(frozen=True, slots=True)
class InitialSeries:
    """Series with known labels, created before their first event: ``rate()`` misses the event that creates a series.

    ``begin`` may read the database, and is repeated until it succeeds.
    """

    name: str
    begin: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Sample:
    """A metric of this process that is read every few seconds: its values by their one label.

    Those of a counter are totals, which may restart at zero.
    """

    name: str
    metric: Gauge | Counter
    read: Callable[[], Mapping[str, float] | Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class DatabaseGauge:
    """A gauge that the worker reads from the database at each scrape: a number, or numbers by their one label."""

    name: str
    documentation: str
    read: Callable[[datetime], float | Mapping[str, float]]
    labels: tuple[str, ...] = ()


observers: Declarations[Observer[Any]] = Declarations(lambda observer: observer.name)
initial_series: Declarations[InitialSeries] = Declarations(lambda series: series.name)
samples: Declarations[Sample] = Declarations(lambda sample: sample.name)
database_gauges: Declarations[DatabaseGauge] = Declarations(lambda gauge: gauge.name)
