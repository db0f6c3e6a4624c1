import gc
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from accounts.audit import Actor, record
from config.composition.operation import measuring
from config.platform.observability import metrics, metrics_port, process_metrics
from config.platform.observability.metrics_serving import SIZES, SMALL, reserve
from config.platform.problems.problem import titles
from llmproxy.calls import metrics as call_metrics
from llmproxy.calls.meter import Meter
from llmproxy.models import LanguageModel, Provider, Route
from llmproxy.requests.call_request import Surface
from usage.costs import AskedRoute, Prices, Spent
from usage.models import UsageRecord

measuring.load()


def note(model: str, **of_meter: Any) -> None:
    """Notes a call of this model that ended well."""
    call: Any = SimpleNamespace(
        admission=SimpleNamespace(
            request=SimpleNamespace(surface=Surface.CHAT), model=SimpleNamespace(name=model)
        ),
        attempt=SimpleNamespace(meter=Meter(**of_meter)),
        abandoned=(),
        began=100.0,
    )
    settlement: Any = SimpleNamespace(
        spent=Spent(input=900, cached_input=700, output=50),
        end=UsageRecord.End.DONE,
        asked=AskedRoute("p", Prices(input=2_000_000, output=8_000_000)),
    )
    call_metrics.note_call(call, settlement)


def number(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


# By name, so that a declaration that is lost is missed.
DECLARED: list[tuple[Any, tuple[str, ...]]] = [
    (metrics.observers, (
        "requests", "refusals", "refused sign-ins", "model calls", "unknown finish reasons",
    )),
    (metrics.initial_series, ("refusals", "garbage collector", "routes")),
    (metrics.samples, (
        "dependencies", "database waits now", "database waits", "database wait time",
        "database waits that failed", "hashing waits now", "hashing waits that failed",
        "garbage collections", "garbage collection time", "open calls", "settlements that wait",
    )),
    (metrics.database_gauges, (
        "shell_jobs_due", "shell_jobs_oldest_due_seconds", "shell_jobs_failed",
        "shell_calls_overdue", "shell_night_done_timestamp_seconds", "shell_spend_limit_share",
    )),
]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "name"), [(declared, name) for declared, names in DECLARED for name in names]
)
def test_an_app_declares_the_metrics_of(declared: Any, name: str) -> None:
    assert declared[name].name == name


def test_every_metric_that_an_app_declares_is_named_here() -> None:
    for declared, names in DECLARED:
        assert {each.name for each in declared} - {*names} == set()


def test_series_that_could_not_begin_begin_later(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: set[str] = set()
    monkeypatch.setattr(measuring, "_begun", begun)
    faults = [True, False]

    def begin() -> None:
        if faults.pop(0):
            raise OSError

    series = metrics.InitialSeries("tests", begin)
    measuring.begin(series)
    assert begun == set()
    measuring.begin(series)
    assert begun == {"tests"}


def test_the_worker_reads_gauges_of_the_database_at_each_scrape(db: None, now: datetime) -> None:
    record("nightly:done", "prune_audit_log", by=Actor.command("nightly"), now=now)
    families = {family.name: family for family in measuring.DatabaseGauges().collect()}
    assert set(families) == {gauge.name for gauge in metrics.database_gauges}
    [overdue] = families["shell_calls_overdue"].samples
    assert (overdue.labels, overdue.value) == ({}, 0)
    [night] = families["shell_night_done_timestamp_seconds"].samples
    assert (night.labels, night.value) == ({"task": "prune_audit_log"}, now.timestamp())


def test_a_process_without_a_port_loads_no_metrics() -> None:
    code = (
        "import sys, django; django.setup();"
        "sys.exit(any(name.startswith('prometheus_client') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


def test_a_stream_is_told_with_its_cost_and_times() -> None:
    note("told", first_delta_at=100.5, delta_at=102.5, deltas=5)
    asked = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "p"}
    asked["gen_ai_request_model"] = "told"
    times = "gen_ai_client_operation_time"
    assert number("shell_cost_dollars_total", model="told", provider="p") == 0.0022
    assert number("gen_ai_client_token_usage_sum", **asked, gen_ai_token_type="input") == 900
    assert number(f"{times}_to_first_chunk_seconds_sum", **asked) == 0.5
    assert number(f"{times}_per_output_chunk_seconds_sum", **asked) == 0.5


def test_words_for_an_end_that_nobody_knows_are_counted_by_provider() -> None:
    before = number("shell_unknown_finish_reasons_total", provider="odd")
    for _ in range(2):
        call_metrics.note_unknown_end("odd")
    assert number("shell_unknown_finish_reasons_total", provider="odd") == before + 2


def test_a_catalogue_that_grows_and_grows_has_only_so_many_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Later calls have series of their own again.
    monkeypatch.setattr(call_metrics, "_pairs", set())
    for each in range(call_metrics.MOST_PAIRS + 5):
        note(f"growing-{each}")
    others = {"surface": "chat", "model": "other", "provider": "other", "end": "done"}
    assert number("shell_calls_total", **others) >= 5
    assert number("shell_calls_total", **{**others, "model": f"growing-{each}"}) == 0


def test_known_labels_are_there_at_0_before_their_first_event() -> None:
    """client_js#63"""
    for each in ("refusals", "garbage collector"):
        measuring.begin(metrics.initial_series[each])
    gc.callbacks.remove(process_metrics.time_pause)
    names = [("shell_refusals_total", {"code": code}) for code in titles()]
    names += [("shell_gc_pauses_total", {"generation": each}) for each in "012"]
    assert len(names) > 30
    assert [each for each in names if REGISTRY.get_sample_value(*each) is None] == []
    process_metrics.note_request("first:seen", 200, 0.1)
    labels = {"route": "first:seen", "status": "500"}
    assert REGISTRY.get_sample_value("shell_requests_total", labels) == 0


def test_calls_that_the_catalogue_makes_possible_are_there_at_0(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_metrics, "_pairs", set())
    model = LanguageModel.objects.create(name="offered", provider_name="theirs")
    off = LanguageModel.objects.create(name="withdrawn", provider_name="theirs", is_on=False)
    provider = Provider.objects.create(name="at-zero")
    for each in (model, off):
        Route.objects.create(
            model=each, provider=provider, provider_name="theirs", surfaces=["chat"]
        )
    call_metrics.begin_routes()
    pair = {"model": "offered", "provider": "at-zero"}
    for end in UsageRecord.End.values:
        labels = {"surface": "chat", **pair, "end": end}
        assert REGISTRY.get_sample_value("shell_calls_total", labels) == 0
    assert REGISTRY.get_sample_value("shell_cost_dollars_total", pair) == 0
    abandoned = {"provider": "at-zero"}
    assert REGISTRY.get_sample_value("shell_abandoned_attempts_total", abandoned) == 0
    withdrawn = {"model": "withdrawn", "provider": "at-zero"}
    assert REGISTRY.get_sample_value("shell_cost_dollars_total", withdrawn) is None


def test_pauses_of_the_garbage_collector_are_noted_later(db: None) -> None:
    pauses, seconds = (f"shell_gc_{what}_total" for what in ("pauses", "pause_seconds"))
    before = [number(each, generation="2") for each in (pauses, seconds)]
    gc.callbacks.append(process_metrics.time_pause)
    try:
        gc.collect()
        assert number(pauses, generation="2") == before[0]
        for each in ("garbage collections", "garbage collection time"):
            measuring.sample(metrics.samples[each])
        assert number(pauses, generation="2") > before[0]
        assert number(seconds, generation="2") > before[1]
    finally:
        gc.callbacks.remove(process_metrics.time_pause)


def test_a_pool_that_begins_anew_takes_nothing_back() -> None:
    counter = process_metrics.WAIT_SECONDS.labels("tests")
    for seconds in (2.0, 3.0, 0.5):
        measuring.grow(counter, seconds)
    assert number("shell_wait_seconds_total", for_what="tests") == 3.0


def test_a_number_that_cannot_be_noted_fails_nothing() -> None:
    noted = measuring.unfailing(process_metrics.note_request)
    noted("r", 200, "never")  # type: ignore[arg-type]


def test_the_room_of_a_process_is_taken_before_it_writes(tmp_path: Path) -> None:
    (tmp_path / "counter_1.db").write_bytes(b"kept")
    reserve(tmp_path, 1)
    assert (tmp_path / "counter_1.db").read_bytes()[:4] == b"kept"
    taken = sum(file.stat().st_blocks for file in tmp_path.glob("*.db")) * 512
    assert taken >= sum(SIZES.values()) * SMALL


def test_counts_of_an_ended_process_are_kept_once(tmp_path: Path) -> None:
    for gone, counts in ((2**22 + 1, 3.0), (2**22 + 2, 4.0)):
        written = metrics_port.MmapedDict(str(tmp_path / f"counter_{gone}.db"))
        written.write_value("key", counts, 0.0)
        written.close()
        (tmp_path / f"gauge_livesum_{gone}.db").touch()
        metrics_port.fold_ended(tmp_path)
        metrics_port.fold_ended(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["counter_0.db"]
    read = metrics_port.MmapedDict.read_all_values_from_file(str(tmp_path / "counter_0.db"))
    assert [(key, value) for key, value, *_ in read] == [("key", 7.0)]
