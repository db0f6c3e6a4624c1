"""Filling a large table quickly: its indexes and foreign keys are taken off, and made again once the rows are there.

Made again means checked: the database looks at every row before it takes a unique index or a foreign key. All of it
is one transaction, so a table that others see has all its constraints, and what is broken off leaves nothing behind.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.db import connection, transaction

# Enough for the sort of ten million entries, and little beside what a host of that many rows has.
SORTING = "512MB"

# A primary key or unique constraint that another table refers to stays, and its rows go in with it.
_CONSTRAINTS = """
SELECT c.conname, pg_get_constraintdef(c.oid), c.contype = 'f'
FROM pg_constraint AS c
WHERE c.conrelid = %(table)s::regclass AND c.contype IN ('p', 'u', 'f')
  AND NOT EXISTS (
      SELECT 1 FROM pg_constraint AS r
      WHERE r.contype = 'f' AND r.conindid = c.conindid AND c.contype <> 'f' AND r.conrelid <> c.conrelid
  )
ORDER BY c.contype = 'f' DESC, c.conname
"""
_INDEXES = """
SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
FROM pg_index AS i
WHERE i.indrelid = %(table)s::regclass
  AND NOT EXISTS (
      SELECT 1 FROM pg_constraint AS c WHERE c.conindid = i.indexrelid AND c.contype IN ('p', 'u', 'x')
  )
ORDER BY 1
"""


class _Constraint(NamedTuple):
    name: str
    definition: str
    is_foreign_key: bool


@contextmanager
def rebuilt(table: str) -> Iterator[None]:
    """Inside, the table has no indexes and no foreign keys of its own; afterwards those it had. Nobody else reads it.

    For the owner of the table. Raises what the database raises where the new rows break a constraint.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {_quoted(table)} IN ACCESS EXCLUSIVE MODE")
        cursor.execute(f"SET LOCAL maintenance_work_mem = '{SORTING}'")
        cursor.execute(_CONSTRAINTS, {"table": table})
        constraints = [_Constraint(*row) for row in cursor.fetchall()]
        cursor.execute(_INDEXES, {"table": table})
        indexes: list[tuple[str, str]] = cursor.fetchall()
        # Foreign keys first: one of them may need the primary key of this very table.
        for each in constraints:
            _alter(table, f"DROP CONSTRAINT {_quoted(each.name)}")
        for name, _ in indexes:
            cursor.execute(f"DROP INDEX {name}")
        yield
        for _, definition in indexes:
            cursor.execute(definition)
        for each in sorted(constraints, key=lambda each: each.is_foreign_key):
            _alter(table, f"ADD CONSTRAINT {_quoted(each.name)} {each.definition}")
        # Rows that another index was filled by may still wait for a check that was put off.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def _alter(table: str, what: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {_quoted(table)} {what}")


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)
