"""The two statements of telemetry that the ORM cannot write: to keep a batch, and to list the values of a column."""

from typing import Any, Literal

from django.db import connection

MOST_KNOWN = 100

# Each column travels as one text with a line for each event, which both sides handle several times as fast as an
# array; the ORM's bulk_create() does not report how many rows were new. No value holds a line's end: patterns refuse
# it, and JSON escapes it. A single event without app or version makes an empty array, hence coalesce.
# Batches at one moment may pass the day's bound together. An event takes 400 bytes beside its properties.
_KEEP_NEW = """
WITH used AS (
    SELECT coalesce(sum(bytes), 0) >= %(most)s
        OR coalesce(sum(bytes) FILTER (WHERE holder_id = %(user)s), 0) >= %(most)s / 4 AS is_full
    FROM telemetry_dailyshare WHERE day = %(day)s AND client_id = %(client)s
), kept AS (
    INSERT INTO telemetry_event
        (event_id, client_id, user_id, name, app, shell_version, occurred_at, received_at, properties)
    SELECT event_id::uuid, %(client)s, %(user)s, name, coalesce(app, ''), coalesce(shell_version, ''),
        occurred_at::timestamptz, %(now)s, properties::jsonb
    FROM used, unnest(
        string_to_array(%(id)s, E'\\n'), string_to_array(%(name)s, E'\\n'), string_to_array(%(occurred_at)s, E'\\n'),
        string_to_array(%(app)s, E'\\n'), string_to_array(%(shell_version)s, E'\\n'),
        string_to_array(%(properties)s, E'\\n')
    ) AS given (event_id, name, occurred_at, app, shell_version, properties)
    WHERE NOT is_full
    ON CONFLICT (event_id, client_id) DO NOTHING
    RETURNING pg_column_size(properties) + 400 AS size
), counted AS (
    INSERT INTO telemetry_dailyshare AS known (day, client_id, holder_id, bytes)
    SELECT %(day)s, %(client)s, %(user)s, sum(size) FROM kept HAVING count(*) > 0
    ON CONFLICT (day, client_id, holder_id) DO UPDATE SET bytes = known.bytes + excluded.bytes
)
SELECT is_full, (SELECT count(*) FROM kept) FROM used
"""
# Each value is one look-up by index, all of them in one query: DISTINCT would read the whole table.
_KNOWN = """
WITH RECURSIVE known AS (
    (SELECT {column} AS value FROM telemetry_event WHERE {within} ORDER BY {column} LIMIT 1)
    UNION ALL
    SELECT (
        SELECT {column} FROM telemetry_event WHERE {within} AND {column} > known.value ORDER BY {column} LIMIT 1
    )
    FROM known WHERE known.value IS NOT NULL
)
SELECT value FROM known WHERE value IS NOT NULL LIMIT %(most)s
"""


def keep_new(values: dict[str, Any]) -> tuple[bool, int]:
    """Stores the events of a batch; returns whether the day is full, and how many of them were new."""
    with connection.cursor() as cursor:
        cursor.execute(_KEEP_NEW, values)
        is_full, new = cursor.fetchone()
    return is_full, int(new)


def known(column: Literal["name", "app", "shell_version"], *, app: str | None = None) -> list[str]:
    """The distinct values of a column in order, at most 100; shell versions of one app only."""
    assert (column == "shell_version") == (app is not None)
    within = "true" if app is None else "app = %(app)s"
    with connection.cursor() as cursor:
        statement = _KNOWN.format(column=column, within=within)
        cursor.execute(statement, {"app": app, "most": MOST_KNOWN})
        return [value for (value,) in cursor.fetchall()]
