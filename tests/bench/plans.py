"""The plan of every statement that a hot path asks, as the database has it at each size."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
from django.db import connection, transaction

from accounts.pruning import prune_audit_log, prune_refresh_tokens
from accounts.rotation import rotate
from accounts.sign_in import Device
from licensing.callers import load_caller
from telemetry.pruning import prune
from tests.bench.grown import Person, Side
from tests.bench.nights import BY
from usage.caps import Asked, PlanCaps, reserve
from usage.models import UsageRecord
from usage.settlement import Spent, settle
from usage.summaries import summary

NO_CAPS = PlanCaps(monthly_input=10**12, monthly_output=10**12, daily=10**12)
LONGEST = 700
_ASKING = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


def told(sides: dict[str, Side]) -> Iterator[str]:
    """The lines of a page: each statement, and below it its plan at each size, with rows and pages as they were."""
    yield from ("# Plans of the hot statements", "")
    found = {name: _plans(side) for name, side in sides.items()}
    for path in PATHS:
        yield from (f"## {path}", "")
        counts = {len(each[path]) for each in found.values()}
        for number in range(max(counts)):
            yield from _statement({name: each[path] for name, each in found.items()}, sides, number)


def _statement(
    plans: dict[str, list[tuple[str, str]]], sides: dict[str, Side], number: int
) -> Iterator[str]:
    asked = next(each[number][0] for each in plans.values() if number < len(each))
    yield from ("```sql", asked[:LONGEST], "```", "")
    for name, each in plans.items():
        if number < len(each):
            yield from (f"At {sides[name].rows:,} rows:", "", "```", each[number][1], "```", "")


def _plans(side: Side) -> dict[str, list[tuple[str, str]]]:
    """Statement and plan of each, by path; whatever they change is taken back."""
    found = {}
    with side.database.rows():
        for path, ask in PATHS.items():
            asked: list[tuple[str, str]] = []
            with transaction.atomic():
                with _explained(asked):
                    ask(side.people[1])
                transaction.set_rollback(True)
            found[path] = asked
    return found


@contextmanager
def _explained(found: list[tuple[str, str]]) -> Iterator[None]:
    """Each statement inside is asked twice: once for its plan, which is taken back, and once as it is meant."""

    def wrapper(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        statement = sql.strip()
        if statement.startswith(_ASKING):
            with psycopg.ClientCursor(connection.connection) as cursor:
                cursor.execute("SAVEPOINT explained")
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS) {statement}", params)
                plan = "\n".join(line for (line,) in cursor.fetchall())
                cursor.execute("ROLLBACK TO SAVEPOINT explained")
            found.append((statement, plan))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(wrapper):
        yield


def _status(person: Person) -> None:
    load_caller(user_id=person.id, session_id=person.session_id)


def _call(person: Person) -> None:
    now = datetime.now(UTC)
    asked = Asked(
        user_id=person.id,
        client_id=person.client_id,
        session_id=person.session_id,
        model="stand-in",
        provider="openai",
        request_id=str(uuid4()),
        streamed=False,
        input_estimate=100,
        output_wanted=100,
    )
    opened = reserve(asked=asked, plan=NO_CAPS, now=now)
    settle(
        record_id=opened.record_id,
        user_id=person.id,
        spent=Spent(input=50, output=50),
        source=UsageRecord.Source.PROVIDER,
        end=UsageRecord.End.DONE,
        now=now,
    )


def _refresh(person: Person) -> None:
    rotate(presented=person.refresh, device=Device(), now=datetime.now(UTC))


def _usage(person: Person) -> None:
    summary(user_id=person.id, plan=NO_CAPS, now=datetime.now(UTC))


def _night(person: Person) -> None:
    now = datetime.now(UTC)
    prune_audit_log(by=BY, now=now)
    prune_refresh_tokens(now=now)
    prune(now=now)


PATHS: dict[str, Callable[[Person], None]] = {
    "license/status": _status,
    "llm/complete: admission and settlement": _call,
    "auth/refresh": _refresh,
    "usage/me": _usage,
    "what the night looks for, where there is nothing old": _night,
}
