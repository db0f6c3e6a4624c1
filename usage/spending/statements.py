"""Statements: what a client's settled calls of a month come to, by person and by model.

The database adds up; rows are read as they are written, so a statement of many people takes no more memory.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from operator import add
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Count, Q, QuerySet, Sum
from django.utils.dateparse import parse_datetime

from config.platform.money import decimal
from usage.models import UsageRecord


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


# The names of a line's sums in files.
NAMES = ("calls", "input", "cached", "output", "cost_usd", "abandoned", "unpriced")
_SUMS: dict[str, Any] = {
    "calls": Count("pk"),
    "input": Sum("input_tokens", default=0),
    "cached": Sum("cached_input_tokens", default=0),
    "output": Sum("output_tokens", default=0),
    "spent": Sum("cost", default=0),
    "abandoned": Count("pk", filter=Q(end=UsageRecord.End.CLIENT_GONE)),
    "unpriced": Count("pk", filter=Q(cost=None)),
}


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

    def abandoned(self) -> Iterator[Line]:
        """A line for each provider whose attempts at these calls were abandoned, by name.

        It may bill them, so they are the client's money, and no person's tokens.
        """
        sums: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
        for _, each in abandoned_attempts(self._settled()):
            found = (1, each.input, each.output, each.cost or 0, each.cost is None)
            sums[each.provider] = list(map(add, sums[each.provider], found))
        for name, (attempts, given, output, cost, unpriced) in sorted(sums.items()):
            yield Line(name, attempts, given, 0, output, cost, 0, unpriced)

    def total(self) -> Line:
        """The sums of all calls; the cost includes the abandoned attempts'."""
        total = Line("total", *self._settled().aggregate(**_SUMS).values())
        return total._replace(cost=total.cost + sum(each.cost for each in self.abandoned()))

    def running(self) -> int:
        """The number of calls that are not settled yet, and in no line."""
        return self._of_month(UsageRecord.State.OPEN).count()

    def _settled(self) -> QuerySet[UsageRecord]:
        return self._of_month(UsageRecord.State.SETTLED)

    def _of_month(self, state: UsageRecord.State) -> QuerySet[UsageRecord]:
        # By the index ``usage_by_client_and_month``.
        records = UsageRecord.objects.filter(client_id=self.client_id, period=self.month)
        return records.filter(state=state).order_by()


def parts(statement: Statement) -> Iterator[tuple[str, Iterable[Line]]]:
    """The lines of a statement by what they are of: person, model, or the provider of attempts that it left."""
    yield "person", statement.people()
    yield "model", statement.models()
    yield "left", statement.abandoned()


def values(line: Line) -> dict[str, Any]:
    """The sums of a line by their names in files; money in dollars with six decimals."""
    _, calls, tokens, cached, output, cost, abandoned, unpriced = line
    found = (calls, tokens, cached, output, str(decimal(cost)), abandoned, unpriced)
    return dict(zip(NAMES, found, strict=True))


class Attempt(NamedTuple):
    """An abandoned attempt as the ledger has it; its cost is in millionths of a dollar, None without prices."""

    provider: str
    input: int
    output: int
    cost: int | None
    is_reported: bool
    asked_at: datetime
    abandoned_at: datetime


def attempts_of(records: Collection[UsageRecord]) -> dict[UUID, list[Attempt]]:
    """The abandoned attempts of each of these records, the first first."""
    return {record.pk: [_read(each) for each in record.abandoned or ()] for record in records}


def abandoned_attempts(records: QuerySet[UsageRecord]) -> Iterator[tuple[UsageRecord, Attempt]]:
    """Yields each abandoned attempt at these calls, with its call."""
    for record in records.filter(abandoned__isnull=False).iterator():
        yield from ((record, _read(each)) for each in record.abandoned or ())


def _read(entry: dict[str, Any]) -> Attempt:
    asked_at, abandoned_at = (parse_datetime(entry[name]) for name in ("asked_at", "abandoned_at"))
    assert asked_at is not None
    assert abandoned_at is not None
    numbers = (entry["input"], entry["output"], entry["cost"], entry["is_reported"])
    return Attempt(entry["provider"], *numbers, asked_at, abandoned_at)
