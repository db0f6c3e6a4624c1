"""Metrics of the ledger."""

from config.platform.observability.metrics import DatabaseGauge, database_gauges
from usage.models import UsageRecord

database_gauges.add(
    DatabaseGauge(
        "shell_calls_overdue",
        "Calls that nobody settles.",
        lambda now: UsageRecord.objects.abandoned(at=now).count(),
    )
)
