"""The report contains every figure, and every goal with its verdict."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.figures import Line
from tests.bench.report import Circumstances, circumstances, markdown, write

UNDER = Circumstances(
    rounds=3,
    seconds=600,
    at=datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
    cores=2,
    processor="a processor",
    python="3.11.0",
    load_before=0.25,
)
CALLS = Line(
    part="complete",
    goal="at least 0.6 of a proxy",
    name="calls, 16 callers",
    unit="calls/s",
    ours=[60.0, 70.0, 80.0],
    reference=[100.0, 100.0, 100.0],
    at_least=0.6,
    against="the proxy",
)
COST = Line(
    part="complete",
    goal="at most 2 ms",
    name="CPU",
    unit="ms/call",
    ours=[3.0, 2.5, 1.9],
    at_most=2.0,
)
TOLD = Line(part="status", goal="", name="p99", unit="ms", ours=[4.0], note="a | b")


def test_the_report_has_a_line_for_each_goal_and_one_for_each_figure() -> None:
    report = list(markdown([CALLS, COST, TOLD], UNDER))
    assert "## Goals: 1 of 2 met" in report
    goal = "| complete | calls, 16 callers | 0.700 (0.600-0.800) times | at least 0.6 of a proxy | met |"
    assert goal in report
    missed = "| complete | CPU | 2.50 (1.90-3.00) ms/call | at most 2 ms | missed (1 of 3 rounds) |"
    assert missed in report
    figure = (
        "| calls, 16 callers | calls/s | 70.0 (60.0-80.0) | 100 (100-100) (the proxy) "
        "| 0.700 (0.600-0.800) | met |"
    )
    assert figure in report
    assert "| p99; a \\| b | ms | 4.00 |  |  |  |" in report


def test_parts_stand_in_the_order_in_which_they_were_measured() -> None:
    heads = [line for line in markdown([CALLS, COST, TOLD], UNDER) if line.startswith("## ")]
    assert heads == ["## Goals: 1 of 2 met", "## complete", "## status"]


def test_the_report_names_the_conditions_of_the_measurement() -> None:
    said = "\n".join(markdown([CALLS], UNDER))
    for each in ("2030-01-02T03:04:05Z", "2 cores of a processor", "Python 3.11.0", "3 rounds"):
        assert each in said
    here = circumstances(rounds=1, seconds=2.0, load_before=0.0)
    assert here.cores >= 1
    assert here.processor


def test_the_same_is_written_for_programs(tmp_path: Path) -> None:
    path = write([CALLS, replace(CALLS, reference=None, at_least=None)], tmp_path, UNDER)
    assert path.read_text().startswith("# What the bench measured")
    told = json.loads((tmp_path / "report.json").read_text())
    assert told["circumstances"]["rounds"] == 3
    first, second = told["lines"]
    assert first["ratios"] == [0.6, 0.7, 0.8]
    assert (first["verdict"], first["is_met"]) == ("met", True)
    assert (second["ratios"], second["verdict"], second["is_met"]) == (None, "", None)
