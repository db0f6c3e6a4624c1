"""Lists everything that needs attention, in order; each kind takes a short query by index or over a small table.

The front page shows the items that an operator's roles may see; alerts are notified by mail and webhook.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.db.models import Count as Number
from django.db.models import F, QuerySet

from config.composition.attention.items import Item, items_of
from config.console.navigation import Count
from config.platform.attention import Kind, Level, Rows, in_order

# The latest items of this process, for the sidebar of every page, which runs no query.
_last_items: list[Item] = []


def items(
    *, now: datetime, operator: Any = None, known: Mapping[str, Rows] | None = None
) -> list[Item]:
    """Returns the items that an operator may see, by level and then newest first; ``known`` as for ``items_of``."""
    kinds = (each for each in in_order() if operator is None or operator.has_perm(each.right))
    return sorted(items_of(kinds, now=now, known=known), key=_urgency)


def alerts(*, now: datetime) -> Iterator[Item]:
    """Returns the items of which operators are notified."""
    kinds = (each for each in in_order() if each.alert)
    return (item for item in items_of(kinds, now=now, whole=True) if item.is_alert)


def about_client(client: UUID, *, now: datetime, operator: Any) -> list[Item]:
    """Returns every item about a client or one of its people that an operator may see."""
    counted, others = _of_clients(now=now, operator=operator)
    known = {kind.name: rows.filter(**{_column_of(kind): client}) for kind, rows in counted.items()}
    found = items_of([*counted, *others], now=now, whole=True, known=known)
    return [item for item in found if attrgetter(item.kind.client)(item.row) == client]


def problems_by_client(*, now: datetime, operator: Any) -> Counter[UUID]:
    """Returns the number of those items for each client. The database counts rows that are items as they are."""
    counted, others = _of_clients(now=now, operator=operator)
    numbers: Counter[UUID] = Counter()
    queries = [
        rows.order_by()
        .values(of=F(_column_of(kind)))
        .annotate(number=Number("pk"))
        .values_list("of", "number")
        for kind, rows in counted.items()
    ]
    for client, number in queries[0].union(*queries[1:], all=True) if queries else ():
        numbers[client] += number
    for item in items_of(others, now=now, whole=True):
        numbers[attrgetter(item.kind.client)(item.row)] += 1
    del numbers[None]
    return numbers


def _of_clients(*, now: datetime, operator: Any) -> tuple[dict[Kind, QuerySet[Any]], list[Kind]]:
    """Returns the kinds about clients that an operator may see: those that are queries, and those that are found."""
    kinds = [each for each in in_order() if each.client and operator.has_perm(each.right)]
    queries = {
        kind: rows
        for kind in kinds
        if kind.then is None and isinstance(rows := kind.find(now), QuerySet)
    }
    return queries, [kind for kind in kinds if kind not in queries]


def _column_of(kind: Kind) -> str:
    """The column with the client of a kind's rows."""
    return kind.client.replace(".", "__")


def look(*, now: datetime) -> None:
    """Updates the items for the counts of the sidebar."""
    _last_items[:] = items(now=now)


def counts(operator: Any, found: Sequence[Item] | None = None) -> dict[str, Count]:
    """Returns the number of items by entry of the sidebar: of ``found``, or of the latest ``look``."""
    counted: dict[str, Count] = {}
    for item in _last_items if found is None else found:
        if operator.has_perm(item.kind.right):
            number, kind = counted.get(item.kind.area, Count(0, "watch"))
            counted[item.kind.area] = Count(number + 1, "" if item.level == Level.ACT else kind)
    return counted


def _urgency(item: Item) -> tuple[Level, bool, float]:
    return item.level, item.since is None, -item.since.timestamp() if item.since else 0
