from usage.models.alerts import Alert, Budget
from usage.models.latency import HourLatency
from usage.models.overrides import Override, Stop
from usage.models.records import RunningCall, UsageRecord, UsageRecordQuerySet
from usage.models.refusals import Refusal
from usage.models.spend_limits import SpendLimit
from usage.models.totals import (
    CountedMonth,
    DailyUsage,
    DayTotal,
    KeyMonth,
    MonthlyUsage,
    MonthTotal,
)

__all__ = (
    "Alert",
    "Budget",
    "CountedMonth",
    "DailyUsage",
    "DayTotal",
    "HourLatency",
    "KeyMonth",
    "MonthTotal",
    "MonthlyUsage",
    "Override",
    "Refusal",
    "RunningCall",
    "SpendLimit",
    "Stop",
    "UsageRecord",
    "UsageRecordQuerySet",
)
