"""Metrics of model calls."""

import time
from itertools import product

from prometheus_client import Counter, Gauge, Histogram

from config.platform.observability.metrics import (
    InitialSeries,
    Observer,
    Sample,
    initial_series,
    observers,
    samples,
)
from config.platform.observability.process_metrics import WAITING
from llmproxy.calls import call as calls
from llmproxy.calls import outbox, watch
from llmproxy.calls.call import Call
from llmproxy.catalogue.choosing import surfaces_of
from llmproxy.dialects import ends
from llmproxy.models import Route
from usage.models import UsageRecord
from usage.settlement import Settlement

CALLS = Counter("shell_calls", "Model calls that ended.", ("surface", "model", "provider", "end"))
COST = Counter("shell_cost_dollars", "Cost of calls.", ("model", "provider"))
ABANDONED = Counter("shell_abandoned_attempts", "Attempts given up.", ("provider",))
UNKNOWN_ENDS = Counter("shell_unknown_finish_reasons", "Taken for a stop.", ("provider",))
OPEN = Gauge("shell_calls_open", "Under way.", ("kind",), multiprocess_mode="livesum")
ASKED = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
TOKENS = Histogram(
    "gen_ai_client_token_usage", "Tokens.", (*ASKED, "gen_ai_token_type"),
    buckets=tuple(4**power for power in range(12)),
)  # fmt: skip
DURATION = Histogram(
    "gen_ai_client_operation_duration_seconds", "Time.", ASKED,
    buckets=(0.01, 0.04, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)  # fmt: skip
FIRST_CHUNK = Histogram(
    "gen_ai_client_operation_time_to_first_chunk_seconds", "Time.", ASKED,
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30),
)  # fmt: skip
PER_CHUNK = Histogram(
    "gen_ai_client_operation_time_per_output_chunk_seconds", "Mean of a stream.", ASKED,
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)  # fmt: skip

# Pairs of model and provider with series of their own in a process: its files have room for these.
MOST_PAIRS = 64
KINDS = ("input", "output", "cached_input", "cache_write", "reasoning")
_pairs: set[tuple[str, str]] = set()


def note_call(call: Call, settlement: Settlement) -> None:
    """Notes a call by its settlement, which every call has once."""
    surface, spent = call.admission.request.surface, settlement.spent
    pair = call.admission.model.name, settlement.asked.provider
    if not _is_kept(pair):
        pair = "other", "other"
    asked = "embeddings" if surface == "embeddings" else "chat", pair[1], pair[0]
    CALLS.labels(surface.value, *pair, settlement.end.value).inc()
    DURATION.labels(*asked).observe(time.monotonic() - call.began)
    cost = settlement.asked.prices.cost(spent) or 0
    for each in call.abandoned:
        ABANDONED.labels(each.provider).inc()
        cost += each.cost or 0
    COST.labels(*pair).inc(cost / 1_000_000)
    for kind in KINDS:
        if number := getattr(spent, kind):
            TOKENS.labels(*asked, kind).observe(number)
    meter = call.attempt and call.attempt.meter
    if meter and meter.first_delta_at is not None and meter.delta_at is not None:
        FIRST_CHUNK.labels(*asked).observe(meter.first_delta_at - call.began)
        if meter.deltas > 1:
            mean = (meter.delta_at - meter.first_delta_at) / (meter.deltas - 1)
            PER_CHUNK.labels(*asked).observe(mean)


def note_unknown_end(provider: str) -> None:
    UNKNOWN_ENDS.labels(provider).inc()


def begin_routes() -> None:
    """Begins the series of the calls that the catalogue makes possible, as far as there is room for them."""
    for route in Route.objects.select_related("model", "provider").order_by("order", "pk"):
        pair = route.model.name, route.provider.name
        if route.model.is_on and route.provider.is_on and _is_kept(pair):
            ABANDONED.labels(pair[1])
            COST.labels(*pair)
            for surface, end in product(surfaces_of(route), UsageRecord.End.values):
                CALLS.labels(surface.value, *pair, end)


def _is_kept(pair: tuple[str, str]) -> bool:
    """Returns whether a model and a provider have series of their own; the first ones have, and keep them."""
    if pair not in _pairs and len(_pairs) >= MOST_PAIRS:
        return False
    _pairs.add(pair)
    return True


observers.add(
    Observer("model calls", calls.ended, note_call),
    Observer("unknown finish reasons", ends.unknown, note_unknown_end),
)
initial_series.add(InitialSeries("routes", begin_routes))
samples.add(
    Sample("open calls", OPEN, watch.under_way),
    Sample("settlements that wait", WAITING, lambda: {"settlement": outbox.pending()}),
)
