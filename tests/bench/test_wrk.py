"""Output of wrk becomes figures."""

import pytest

from tests.bench.wrk import Result, read

OUTPUT = """Running 4s test @ http://127.0.0.1:1/
  1 threads and 16 connections
Requests/sec:  24512.33
figures: {"requests": 8000, "microseconds": 4000000, "p50": 640, "p99": 2270, "failed": 3}
"""


def test_figures_are_read_in_seconds_and_milliseconds() -> None:
    assert read(OUTPUT) == Result(requests=8000, rps=2000.0, p50=0.64, p99=2.27, failed=3)


def test_output_without_figures_is_no_result() -> None:
    with pytest.raises(StopIteration):
        read("unable to connect to 127.0.0.1:1")
