"""Finders of calls and refusals for the console's search."""

from config.console.finders import Finder, finders, short_id
from usage.models import Refusal, UsageRecord

finders.add(
    Finder(
        "Calls", 30, UsageRecord, lambda term: term.id() | term.request_id("request_id"),
        "Call, Person, Model, Time, End",
        lambda row: (str(row.user), row.model, row.opened_at, row.get_end_display()),
        name=short_id, related=("user",), whole=("request_id",),
    ),
    Finder(
        "Refusals", 40, Refusal, lambda term: term.request_id("request_ids__contains"),
        "Refusal, Person, Model, Time",
        lambda row: (str(row.user or row.address), row.model, row.last_at),
        related=("user",), whole=("request_ids",),
    ),
)  # fmt: skip
