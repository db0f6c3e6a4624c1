"""Nightly jobs, given the same to remove whatever else is stored.

Each is done twice, and the first time is taken back. How often that looks at a page is counted: at most so many a disk
is asked for in a real night, whose rows nobody has looked at for months, and no cache changes the count. The second
time is timed: at either size it finds those pages at hand, and nothing left to be written by what made the rows.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import psycopg
from django.db import connection, transaction

from accounts.audit import Actor
from accounts.worker.pruning import prune_audit_log, prune_refresh_tokens
from telemetry.pruning import prune
from tests.served.database import Database
from tests.tools.owners import as_superuser
from usage import alerts

BY = Actor.command("bench")
_EVENTS = """
INSERT INTO accounts_auditevent (at, action, actor, target, target_id, request_id, reason)
SELECT now() - interval '100 days' + n * interval '1 second', 'session:ended', 'old@bench.test', 'old@bench.test',
       gen_random_uuid(), gen_random_uuid(), ''
FROM generate_series(1, 20000) AS n
"""
_TELEMETRY = """
INSERT INTO telemetry_event
    (event_id, client_id, user_id, name, app, shell_version, occurred_at, received_at, properties)
SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'event.' || n % 30, 'app-' || n % 20, '1.0.1', at, at,
       '{"ms": 12}'
FROM (SELECT n, now() - interval '100 days' + n * interval '1 second' AS at FROM generate_series(1, 20000) n) AS row
"""
# Half of them signed out, half left to expire; of people who are all over the table.
_SESSIONS = """
WITH made AS (
    INSERT INTO accounts_session (id, user_id, device_fp, started_at, last_used_at, ended_at, ended_by)
    SELECT gen_random_uuid(), id, 'old', now() - interval '90 days', now() - interval '80 days',
           CASE WHEN n % 2 = 0 THEN now() - interval '80 days' END, CASE WHEN n % 2 = 0 THEN 'logout' ELSE '' END
    FROM (SELECT id, row_number() OVER () AS n
          FROM (SELECT id FROM accounts_user WHERE client_id IS NOT NULL ORDER BY md5(id::text) LIMIT 50) AS chosen,
               generate_series(1, 4)) AS people
    RETURNING id, user_id, started_at, ended_at
), chain AS (
    SELECT made.*, n, md5(made.id::text || n)::uuid AS token, md5(made.id::text || n + 1)::uuid AS next
    FROM made, generate_series(1, 100) AS n
)
INSERT INTO accounts_refreshtoken
    (id, user_id, session_id, token_hash, device_fp, issued_at, expires_at, revoked_at, replaced_at, replaced_by_id)
SELECT token, user_id, id, 'of nothing', 'old', started_at + n * interval '1 hour',
       started_at + n * interval '1 hour' + interval '20 days', ended_at,
       CASE WHEN n < 100 THEN started_at + (n + 1) * interval '1 hour' END, CASE WHEN n < 100 THEN next END
FROM chain
"""


# Of this connection alone; what it has counted is told after the end of the next transaction.
_TELL = "SELECT pg_stat_force_next_flush()"
_LOOKED_AT = """
SELECT sum(hits) + sum(read_bytes) / current_setting('block_size')::int
FROM pg_stat_get_backend_io(pg_backend_pid()) WHERE object = 'relation'
"""


class Taken(NamedTuple):
    """Seconds of a job, and how often it looks at a page of a table or an index."""

    seconds: float
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A job, what it finds, and what it says it has done; where it removes nothing, ``is_bounded`` is not."""

    name: str
    removes: str
    ageing: str
    work: Callable[[datetime], object]
    done: object
    is_bounded: bool = True

    def taken(self, database: Database) -> Taken:
        """Measures the rule on rows that are made for it."""
        with database.rows():
            if self.ageing:
                with connection.cursor() as cursor:
                    cursor.execute(self.ageing)
                with psycopg.connect(as_superuser(database.url), autocommit=True) as superuser:
                    superuser.execute("CHECKPOINT")
            pages = self._pages()
            began = time.perf_counter()
            done = self.work(datetime.now(UTC))
            seconds = time.perf_counter() - began
        assert self.done in (None, done), (self.name, done)
        return Taken(seconds, pages)

    def _pages(self) -> int:
        """Counts the pages read, checks at the end of a transaction included; then rolls back."""
        before = _looked_at()
        with transaction.atomic():
            self.work(datetime.now(UTC))
            connection.check_constraints()
            transaction.set_rollback(True)
        return _looked_at() - before


def _looked_at() -> int:
    with connection.cursor() as cursor:
        cursor.execute(_TELL)
        cursor.execute(_LOOKED_AT)
        (pages,) = cursor.fetchone()
        return int(pages)


JOBS = (
    Night(
        name="prune_audit_log",
        removes="20,000 events removed",
        ageing=_EVENTS,
        work=lambda now: prune_audit_log(by=BY, now=now),
        done=20_000,
    ),
    Night(
        name="prune_telemetry",
        removes="20,000 events removed",
        ageing=_TELEMETRY,
        work=lambda now: prune(now=now).events,
        done=20_000,
    ),
    Night(
        name="prune_refresh_tokens",
        removes="200 sessions with 20,000 tokens removed",
        ageing=_SESSIONS,
        work=lambda now: prune_refresh_tokens(now=now),
        done=(200, 20_000),
    ),
    Night(
        name="check_usage_alerts",
        removes="which looks at everybody who has used anything this month",
        ageing="",
        work=lambda now: alerts.check(now=now, dry_run=True),
        done=None,
        is_bounded=False,
    ),
)
