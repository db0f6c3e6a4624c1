"""Summaries of hours by model, provider or hour."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from usage.latency.buckets import Buckets, least, percentile, read
from usage.models import HourLatency

GROUPS = ("model", "provider", "hour")


@dataclass(slots=True)
class Summary:
    """Calls, their errors, failed attempts, and times in milliseconds of those that were done."""

    calls: int = 0
    errors: int = 0
    failed_attempts: int = 0
    output_tokens: int = 0
    output_ms: int = 0
    first: Buckets = field(default_factory=Counter)
    whole: Buckets = field(default_factory=Counter)

    def add(self, row: HourLatency) -> None:
        self.calls += row.calls
        self.errors += row.errors
        self.failed_attempts += row.failed_attempts
        self.output_tokens += row.output_tokens
        self.output_ms += row.output_ms
        for bucket, number in read(row.first).items():
            self.first[bucket] += number
        for bucket, number in read(row.whole).items():
            self.whole[bucket] += number

    def first_output(self, share: float) -> float | None:
        return percentile(self.first, share)

    def whole_answer(self, share: float) -> float | None:
        return percentile(self.whole, share)

    @property
    def slow(self) -> float | None:
        """Returns the milliseconds above which the slowest twentieth of whole answers are."""
        return least(self.whole, 0.95)

    @property
    def speed(self) -> float | None:
        """Returns tokens a second of streams, from their first output on."""
        return 1_000 * self.output_tokens / self.output_ms if self.output_ms else None


def rows_between(
    since: datetime, until: datetime, *, using: str | None = None, **chosen: str
) -> list[HourLatency]:
    """The rows of these hours, the first hour first; ``chosen``: a model or a provider."""
    rows = HourLatency.objects.using(using).filter(hour__gte=since, hour__lt=until, **chosen)
    return list(rows.order_by("hour", "id"))


def grouped(rows: Iterable[HourLatency], by: str) -> dict[Any, Summary]:
    """Summaries by one of ``GROUPS``, in the order of the rows."""
    found: dict[Any, Summary] = {}
    for row in rows:
        found.setdefault(getattr(row, by), Summary()).add(row)
    return found


def whole_of(rows: Iterable[HourLatency]) -> Summary:
    found = Summary()
    for row in rows:
        found.add(row)
    return found
