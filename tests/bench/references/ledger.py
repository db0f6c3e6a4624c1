"""The plain way of keeping accounts: the proxy beside this, with a count in Redis and caps that hold after a crash.

Each call is one statement that is committed before the provider is asked (room under a cap, and an open record), and
one that is committed before the last of the answer (the record is settled), each by itself. A stream is charged its
pieces. Nobody is asked what the caller may and which models there are, nobody looks after a client that leaves or a
process that dies, and nothing is logged.
"""

import json
import os
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import path
from psycopg_pool import ConnectionPool
from redis import Redis

from tests.bench.references import proxy

RESERVED, CAP = 1_000, 1_000_000_000_000
TABLES = """
CREATE TABLE IF NOT EXISTS bench_month (
    person text PRIMARY KEY, used bigint NOT NULL, reserved bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS bench_call (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, person text NOT NULL, is_open boolean NOT NULL,
    tokens bigint NOT NULL, opened_at timestamptz NOT NULL DEFAULT now(), settled_at timestamptz
)
"""
BEGIN_MONTH = "INSERT INTO bench_month VALUES (%s, 0, 0) ON CONFLICT DO NOTHING"
ADMIT = f"""
WITH month AS (
    UPDATE bench_month SET reserved = reserved + {RESERVED}
    WHERE person = %s AND used + reserved + {RESERVED} <= {CAP}
    RETURNING person
)
INSERT INTO bench_call (person, is_open, tokens) SELECT person, true, {RESERVED} FROM month RETURNING id
"""
SETTLE = f"""
WITH settled AS (
    UPDATE bench_call SET is_open = false, tokens = %s, settled_at = now() WHERE id = %s AND is_open
    RETURNING person, tokens
)
UPDATE bench_month AS month SET used = used + settled.tokens, reserved = reserved - {RESERVED}
FROM settled WHERE month.person = settled.person
"""


def complete(request: HttpRequest) -> HttpResponseBase:
    record = _admitted(request)
    if record is None:
        return HttpResponse(status=401)
    tokens = 0
    try:
        answer = proxy.passed_on(request)
        if answer.status_code == HTTPStatus.OK:
            tokens = json.loads(answer.content)["usage"]["completion_tokens"]
    finally:
        _ask(SETTLE, tokens, record)
    return answer


def stream(request: HttpRequest) -> HttpResponseBase:
    record = _admitted(request)
    if record is None:
        return HttpResponse(status=401)
    answer = proxy.passed_on_as_it_comes(request)
    answer.streaming_content = _settled(answer.streaming_content, record)
    return answer


def _settled(pieces: Any, record: int) -> Iterator[bytes]:
    """The pieces, the last of them once the record is settled, which it is however they end."""
    number, is_settled = 0, False
    try:
        for number, piece in enumerate(pieces, start=1):
            if b"[DONE]" in piece:
                _ask(SETTLE, number, record)
                is_settled = True
            yield piece
    finally:
        if not is_settled:
            _ask(SETTLE, number, record)


def _admitted(request: HttpRequest) -> int | None:
    """The open record of a call; None for a token that is not ours."""
    person = proxy.whose(request)
    if person is None:
        return None
    with _redis().pipeline(transaction=False) as counted:
        counted.incr(f"bench:{person}").expire(f"bench:{person}", 60).execute()
    row = _ask(ADMIT, person)
    if row is None:
        _ask(BEGIN_MONTH, person)
        row = _ask(ADMIT, person)
    return int(row[0])


def _ask(statement: str, *values: Any) -> Any:
    """One statement, committed when this returns, and its row if it gives any."""
    with _pool().connection() as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchone() if cursor.description else None


@cache
def _pool() -> ConnectionPool[Any]:
    """Made by the first request, after the fork."""
    kwargs = {"autocommit": True, "prepare_threshold": 0}
    pool: ConnectionPool[Any] = ConnectionPool(
        os.environ["DATABASE_URL"], min_size=0, max_size=16, kwargs=kwargs, open=True
    )
    with pool.connection() as connection:
        connection.execute("SELECT pg_advisory_lock(1)")
        for table in TABLES.split(";"):
            connection.execute(table, prepare=False)
        connection.execute("SELECT pg_advisory_unlock(1)")
    return pool


@cache
def _redis() -> Redis:
    return Redis.from_url(os.environ["CACHE_URL"])


urlpatterns = [path("v1/llm/complete", complete), path("v1/llm/stream", stream)]
application = proxy.application
