"""Statements: what a client's settled calls of a month come to, by person and by model.

The database adds up; rows are read as they are written, so a statement of many people takes no more memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Count, Q, QuerySet, Sum

from usage.models import LeftAttempt, UsageRecord


class Line(NamedTuple):
    """The sums of one person, of one model, or of all. ``input`` includes ``cached``.

    ``cost`` is in millionths of a dollar, of the calls with prices; ``unpriced`` is the number of those without.
    """

    name: str
    calls: int
    input: int
    cached: int
    output: int
    cost: int
    abandoned: int
    unpriced: int


_SUMS: dict[str, Any] = {
    "calls": Count("pk"),
    "input": Sum("input_tokens", default=0),
    "cached": Sum("cached_input_tokens", default=0),
    "output": Sum("output_tokens", default=0),
    "spent": Sum("cost", default=0),
    "abandoned": Count("pk", filter=Q(end=UsageRecord.End.CLIENT_GONE)),
    "unpriced": Count("pk", filter=Q(cost=None)),
}

_LEFT_SUMS = {name: _SUMS[name] for name in ("calls", "input", "output", "spent", "unpriced")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A client's month, by the month of admission. A person's name is their email, or their id once it is erased."""

    client_id: UUID
    month: date

    def people(self) -> Iterator[Line]:
        """A line for each person, by email."""
        rows = self._settled().values_list("user__email", "user_id").annotate(**_SUMS)
        for email, user_id, *sums in rows.order_by("user__email", "user_id").iterator():
            yield Line(email or str(user_id), *sums)

    def models(self) -> Iterator[Line]:
        """A line for each model, by name."""
        rows = self._settled().values_list("model").annotate(**_SUMS)
        for name, *sums in rows.order_by("model").iterator():
            yield Line(name, *sums)

    def left(self) -> Iterator[Line]:
        """A line for each provider that left attempts at these calls without an answer.

        It may bill them, by an estimate; nobody is charged, so the total has none of them.
        """
        of_month = {"record__client_id": self.client_id, "record__period": self.month}
        rows = LeftAttempt.objects.filter(**of_month).order_by().values_list("provider")
        for name, *sums in rows.annotate(**_LEFT_SUMS).order_by("provider").iterator():
            calls, given, output, cost, unpriced = sums
            yield Line(name, calls, given, 0, output, cost, 0, unpriced)

    def total(self) -> Line:
        return Line("total", *self._settled().aggregate(**_SUMS).values())

    def running(self) -> int:
        """The number of calls that are not settled yet, and in no line."""
        return self._of_month(UsageRecord.State.OPEN).count()

    def _settled(self) -> QuerySet[UsageRecord]:
        return self._of_month(UsageRecord.State.SETTLED)

    def _of_month(self, state: UsageRecord.State) -> QuerySet[UsageRecord]:
        # By the index ``usage_by_client_and_month``.
        records = UsageRecord.objects.filter(client_id=self.client_id, period=self.month)
        return records.filter(state=state).order_by()
