"""The page of a soak says what was judged, and what each process held."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.soak.page import write


def test_the_page_has_a_row_for_each_series_and_names_what_grew(tmp_path: Path) -> None:
    looks = SimpleNamespace(
        series={
            ("memory", "web"): [(float(at), 90.0) for at in range(0, 1230, 5)],
            ("memory", "worker"): [(float(at), 100 + at / 10) for at in range(0, 1230, 5)],
            # Its process ended before a whole minute was over.
            ("memory", "web 9"): [(1225.0, 1.0)],
        }
    )
    request = SimpleNamespace(kind="status", at=70.0, silence=0.25, is_good=True)
    soaked: Any = SimpleNamespace(
        looks=looks, seen=[request], began=0.0, loads=[1.0], seconds=1230.0
    )
    assert write(soaked, tmp_path, day="2030-01-02") == ["memory of worker, by +85.5"]
    page = (tmp_path / "soak.md").read_text()
    assert "1 of 2 grew; memory of worker, by +85.5 (`tests/soak`)" in page
    assert "| memory of web | 90.00 | 90.00 |" in page
    assert "| memory of worker | 162.75 | 216.75 |" in page
    assert "| p99 of a request, s | 0.25 | 0.25 |" in page
    assert "web 9" not in page
