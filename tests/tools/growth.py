"""Rows as a service has them that has been used for ninety days, by the million, to see that it is still quick.

Clients, people and what belongs to them are new and keep every constraint: totals are the sums of the ledger, tokens
form chains, nothing is old enough to be pruned, nobody made up can sign in. The rest of the database is not touched.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter
from typing import Any, NamedTuple

from django.db import connection, transaction

from accounts.models import User
from tests.tools.bulk import rebuilt
from tests.tools.growth_rows import (
    AUDIT,
    CAPS,
    CLIENTS,
    EVENTS,
    LICENCES,
    MONTHS,
    NIGHTS,
    PEOPLE,
    PLAN,
    RECORDS,
    SESSIONS,
    TOKENS,
)

# A little less than what is kept, so that the first night after it finds nothing to remove.
SPAN = timedelta(days=89)
# A shell that is used through the working day asks for a new pair a few dozen times.
TOKENS_OF_A_SESSION = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The number of rows of each kind to add. There is one session for every hundred tokens."""

    records: int
    tokens: int
    audit: int
    events: int
    people: int
    clients: int

    @property
    def sessions(self) -> int:
        return -(-self.tokens // TOKENS_OF_A_SESSION)


class Grown(NamedTuple):
    """A table with the rows that were added, and the seconds that took, indexes included and vacuuming not."""

    table: str
    rows: int
    seconds: float


class _Filling(NamedTuple):
    table: str
    statements: Sequence[str]


# Each later table of a row refers to an earlier one, or sums it up. The two rows are independent.
_USE = (
    _Filling("usage_usagerecord", [RECORDS]),
    _Filling("usage_monthlyusage", [MONTHS]),
    _Filling("accounts_session", [SESSIONS]),
    _Filling("accounts_refreshtoken", [TOKENS]),
)
_NEWS = (_Filling("accounts_auditevent", [AUDIT, NIGHTS]), _Filling("telemetry_event", [EVENTS]))


_FEW = ("licensing_plan", "accounts_client", "licensing_licence", "accounts_user")


def has_people(*, besides: Sequence[str]) -> bool:
    """Returns whether anybody is here but those by these emails: a database in use."""
    return User.objects.exclude(email__in=besides).exists()


def grow(*, size: Size, now: datetime) -> Iterator[Grown]:
    """Adds the rows, spread over the ninety days before ``now``; tells of each table when it is done.

    Nobody else reads or writes a table while it grows.
    """
    values = {
        "salt": secrets.token_hex(8),
        "now": now,
        "begin": now - SPAN,
        "span": SPAN,
        **{name: getattr(size, name) for name in Size.__slots__},
        "sessions": size.sessions,
    }
    for table, statement in zip(_FEW, (PLAN, CLIENTS, LICENCES, PEOPLE), strict=True):
        yield _in_place(table, statement, values)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        news = pool.submit(_apart, lambda: [_fill(each, values) for each in _NEWS])
        for filling in _USE:
            yield _fill(filling, values)
        _in_place("licensing_plan", CAPS, values)
        yield from news.result()
    # Only now: for as long as one of the two goes on, rows are too new to be taken for seen by all.
    for table in (*_FEW, *(each.table for each in (*_USE, *_NEWS))):
        _tend(table)


def _in_place(table: str, statement: str, values: dict[str, Any]) -> Grown:
    began = perf_counter()
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return Grown(table, cursor.rowcount, perf_counter() - began)


def _fill(filling: _Filling, values: dict[str, Any]) -> Grown:
    began, rows = perf_counter(), 0
    with transaction.atomic(), connection.cursor() as cursor:
        # Rows lost in a crash can be made again.
        cursor.execute(
            "SET LOCAL synchronous_commit = off; SET LOCAL work_mem = '256MB'; SET LOCAL jit = off"
        )
        with rebuilt(filling.table):
            for statement in filling.statements:
                cursor.execute(statement, values)
                rows += cursor.rowcount
        # For the statements that come next.
        cursor.execute(f"ANALYZE {connection.ops.quote_name(filling.table)}")
    return Grown(filling.table, rows, perf_counter() - began)


def _tend(table: str) -> None:
    """So that the planner has statistics of the rows, and reads that need only an index read only that."""
    if connection.in_atomic_block:
        return
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM (ANALYZE) {connection.ops.quote_name(table)}")


def _apart(work: Callable[[], list[Grown]]) -> list[Grown]:
    """On a connection of this thread, which is given back."""
    try:
        return work()
    finally:
        connection.close()
