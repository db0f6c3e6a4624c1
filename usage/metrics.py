"""Metrics of the ledger."""

from datetime import datetime

from config.platform.observability.metrics import DatabaseGauge, database_gauges
from usage.models import SpendLimit, UsageRecord


def _share_of_limits(now: datetime) -> dict[str, float]:
    """The larger share of each limit's day and month that is spent."""
    return {
        limit.provider or "all": max(
            (each.spent / each.amount for each in limit.spans(now)), default=0.0
        )
        for limit in SpendLimit.objects.all()
    }


database_gauges.add(
    DatabaseGauge(
        "shell_calls_overdue",
        "Calls that nobody settles.",
        lambda now: UsageRecord.objects.abandoned(at=now).count(),
    ),
    DatabaseGauge(
        "shell_spend_limit_share",
        "Share of a spending limit that is spent, 1 being all of it; the larger of day and month.",
        _share_of_limits,
        ("provider",),
    ),
)
