"""Contents of a whole database in a few numbers, and a check that its sums agree with its rows."""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

TABLES = """
SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1
"""
DIGEST = "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM {} AS t"
# Sequence, and the column that it numbers.
NUMBERED = """
SELECT seq.relname, tab.relname, att.attname FROM pg_depend AS dep
JOIN pg_class AS seq ON seq.oid = dep.objid AND seq.relkind = 'S'
JOIN pg_class AS tab ON tab.oid = dep.refobjid
JOIN pg_attribute AS att ON att.attrelid = tab.oid AND att.attnum = dep.refobjsubid
WHERE dep.deptype IN ('a', 'i') AND tab.relnamespace = 'public'::regnamespace
"""
BEHIND = "SELECT coalesce(max({column}), 0) > (SELECT last_value FROM {sequence}) FROM {table}"
# Totals of months that differ from their records, which should be none.
MONTHS = """
SELECT month.id FROM usage_monthlyusage AS month LEFT JOIN usage_usagerecord AS record
    ON record.user_id = month.user_id AND record.period = month.period
GROUP BY month.id HAVING
    month.input_used <> coalesce(sum(coalesce(capped_input, input_tokens)) FILTER (WHERE state <> 'open'), 0)
    OR month.output_used <> coalesce(sum(output_tokens) FILTER (WHERE state <> 'open'), 0)
    OR month.input_reserved <> coalesce(sum(record.reserved_input) FILTER (WHERE state = 'open'), 0)
    OR month.output_reserved <> coalesce(sum(record.reserved_output) FILTER (WHERE state = 'open'), 0)
"""
SETTLED = """
SELECT count(*), coalesce(sum(input_tokens), 0), coalesce(sum(cached_input_tokens), 0), coalesce(sum(output_tokens), 0)
FROM usage_usagerecord WHERE state = 'settled'
"""
SUMMED = """
SELECT coalesce(sum(calls), 0), coalesce(sum(input_tokens), 0), coalesce(sum(cached_input_tokens), 0),
    coalesce(sum(output_tokens), 0) FROM {}
"""
SUMS = ("usage_dailyusage", "usage_daytotal", "usage_monthtotal")

Digest = dict[str, tuple[Any, ...]]


def digest(url: str) -> Digest:
    """The number of rows of every table and a sum over all that is in them, at one moment."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return {name: _one(connection, DIGEST, name) for (name,) in connection.execute(TABLES)}


def numbers_behind(url: str) -> list[str]:
    """Sequences that would give out a number that has a row already."""
    with psycopg.connect(url) as connection:
        found = []
        for sequence, table, column in connection.execute(NUMBERED).fetchall():
            names = {"sequence": sequence, "table": table, "column": column}
            asked = sql.SQL(BEHIND).format(**{k: sql.Identifier(v) for k, v in names.items()})
            if connection.execute(asked).fetchone() == (True,):
                found.append(sequence)
        return found


def months_that_differ(url: str) -> list[Any]:
    """Months whose running totals are not the sums of their records."""
    with psycopg.connect(url) as connection:
        return connection.execute(MONTHS).fetchall()


def is_counted(url: str, tables: Sequence[str] = SUMS) -> bool:
    """Returns whether daily usage and its totals are the sums of the settled records."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        settled = connection.execute(SETTLED).fetchone()
        return all(_one(connection, SUMMED, name) == settled for name in tables)


def _one(connection: psycopg.Connection[Any], query: str, name: str) -> tuple[Any, ...]:
    return connection.execute(sql.SQL(query).format(sql.Identifier(name))).fetchone() or ()
