"""The plan of every statement of a hot path, as the database has it at each size.

Each path is asked in this process by the rules that its view calls, on a connection that every statement can be seen
on, in a transaction that is taken back. What a service has prepared is planned as it is there: once it has been asked
a few times the server may plan for any values (``$1`` in a plan), or go on to plan for those that are given.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
from django.db import connection, transaction
from django.db.backends.postgresql.base import ServerBindingCursor

from accounts.sessions.rotation import rotate
from accounts.sessions.sign_in import Device, account_of, sign_in
from accounts.worker.pruning import prune_audit_log, prune_refresh_tokens
from licensing.callers import Caller, load_caller
from llmproxy.calls.admission import admit
from llmproxy.requests.chat import parse
from telemetry.pruning import prune
from tests.bench.callers import PASSWORD
from tests.bench.complete import BODY
from tests.bench.grown import Person, Side
from tests.bench.nights import BY
from tests.bench.releasing import publisher
from tests.usage.ledger import settle
from usage.costs import Spent
from usage.limits import PlanCaps
from usage.models import UsageRecord
from usage.spending.summaries import summary

Ask = Callable[[Person], None]
Explained = list[tuple[str, str]]
PUBLISH = "publish"
_ASKING = ("SELECT", "(SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
# Statements without a plan. Anything else would be missing from the page.
_UNPLANNED = ("SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO SAVEPOINT", "SET ")
_PLACE = re.compile(r"%(?:\((\w+)\))?s")
# From then on the server weighs a plan for any values against one for each.
_ASKED_BEFORE = 5


def told(sides: dict[str, Side]) -> Iterator[str]:
    """The lines of a page: each statement, and below it its plan at each size, with rows and pages as they were."""
    yield from ("# Plans of the hot statements", "")
    found = {name: _plans(side) for name, side in sides.items()}
    for path in dict.fromkeys(path for each in found.values() for path in each):
        yield from (f"## {path}", "")
        yield from _path({sides[name].rows: each[path] for name, each in found.items()})


def _path(found: dict[int, Explained]) -> Iterator[str]:
    """Its statements in their order, each once."""
    for statement in dict.fromkeys(asked for each in found.values() for asked, _ in each):
        yield from ("```sql", statement, "```", "")
        for rows, each in found.items():
            plans = [plan for asked, plan in each if asked == statement]
            times = f", the first of {len(plans)} times" if len(plans) > 1 else ""
            yield f"At {rows:,} rows{times}:" if plans else f"At {rows:,} rows it is not asked."
            yield from ("", *(("```", plans[0], "```", "") if plans else ()))


def _plans(side: Side) -> dict[str, Explained]:
    """Statement and plan of each, by path."""
    with side.database.rows(), publisher() as publish:
        # It has been published to before.
        paths = {**PATHS, PUBLISH: lambda _: publish(side.name)}
        return {path: explained(partial(ask, side.people[1])) for path, ask in paths.items()}


def explained(ask: Callable[[], None]) -> Explained:
    """Each statement that is asked, with its plan; whatever they change is taken back.

    It is asked once before, so that what a process remembers is known to it.
    """
    found: Explained = []
    for page in ([], found):
        with transaction.atomic():
            with _explaining(page):
                ask()
            transaction.set_rollback(True)
    return found


@contextmanager
def _explaining(found: Explained) -> Iterator[None]:
    """Each statement inside is asked for its plan, which is taken back, and then as it is meant."""

    def wrapper(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        statement = sql.strip()
        if statement.startswith(_ASKING):
            assert not many, statement
            is_prepared = isinstance(context["cursor"].cursor, ServerBindingCursor)
            found.append((statement, _plan(statement, params, is_prepared=is_prepared)))
        else:
            assert statement.startswith(_UNPLANNED), statement
        return execute(sql, params, many, context)

    with connection.execute_wrapper(wrapper):
        yield


def _plan(statement: str, params: Any, *, is_prepared: bool) -> str:
    with psycopg.ClientCursor(connection.connection) as cursor:
        cursor.execute("SAVEPOINT explained")
        if is_prepared:
            statement, params = _prepared(cursor, statement, params)
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS) {statement}", params)
        plan = "\n".join(line for (line,) in cursor.fetchall())
        if is_prepared:
            cursor.execute("DEALLOCATE explained")
        cursor.execute("ROLLBACK TO SAVEPOINT explained")
        return plan


def _prepared(
    cursor: psycopg.ClientCursor[Any], statement: str, params: Any
) -> tuple[str, Sequence[Any]]:
    """Returns a function that executes the statement, prepared and planned as often as its first few times."""
    text, values = _numbered(statement, params)
    cursor.execute(f"PREPARE explained AS {text}")
    given = f" ({', '.join(['%s'] * len(values))})" if values else ""
    execution = f"EXECUTE explained{given}"
    for _ in range(_ASKED_BEFORE):
        cursor.execute(f"EXPLAIN {execution}", values)
    return execution, values


def _numbered(statement: str, params: Any) -> tuple[str, Sequence[Any]]:
    """With ``$1`` for the first value, and the values in that order."""
    if not isinstance(params, Mapping):
        numbers = iter(range(1, len(params) + 1))
        return _PLACE.sub(lambda _: f"${next(numbers)}", statement), params
    names = list(dict.fromkeys(_PLACE.findall(statement)))
    text = _PLACE.sub(lambda found: f"${names.index(found[1]) + 1}", statement)
    return text, [params[name] for name in names]


def _caller(person: Person) -> Caller:
    caller = load_caller(user_id=person.id, session_id=person.session_id)
    assert caller is not None
    return caller


def _status(person: Person) -> None:
    _caller(person)


def _call(person: Person) -> None:
    now = datetime.now(UTC)
    chat = parse(json.loads(BODY), stream=False)
    admission = admit(
        caller=_caller(person),
        request=chat,
        request_id=str(uuid4()),
        now=now,
    )
    settle(
        record_id=admission.reservation.record_id,
        user_id=person.id,
        spent=Spent(input=50, output=50),
        source=UsageRecord.Source.PROVIDER,
        end=UsageRecord.End.DONE,
        now=now,
    )


def _refresh(person: Person) -> None:
    rotate(presented=person.refresh, device=Device(), now=datetime.now(UTC))


def _sign_in(person: Person) -> None:
    # An address that nobody has come from: all sessions of the person are looked at.
    device = Device(fingerprint="bench", address="192.0.2.1")
    sign_in(
        email=person.email,
        password=PASSWORD,
        device=device,
        now=datetime.now(UTC),
        account=account_of(person.email, device=device),
    )


def _usage(person: Person) -> None:
    caller = _caller(person)
    summary(user_id=person.id, plan=PlanCaps.of(caller), now=datetime.now(UTC))


def _night(person: Person) -> None:
    now = datetime.now(UTC)
    prune_audit_log(by=BY, now=now)
    prune_refresh_tokens(now=now)
    prune(now=now)


PATHS: dict[str, Ask] = {
    "license/status": _status,
    "llm/complete: admission and settlement": _call,
    "auth/refresh": _refresh,
    "auth/login": _sign_in,
    "usage/me": _usage,
    "what the night looks for, where there is nothing old": _night,
}
