"""Names that a migrated database holds."""

from collections.abc import Iterator
from typing import Any

from django.db import connection

from tests.lasting.reading import Part

# Of an extension, and of the tests themselves, none.
_OWN = """
n.nspname = 'public' AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = {}.oid AND deptype = 'e')
"""
_RELATIONS = f"""
SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE {_OWN.format("c")} AND c.relkind IN ('r', 'p', 'v', 'm') AND NOT c.relispartition
"""
_FUNCTIONS = f"""
SELECT p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')' FROM pg_proc AS p
JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE {_OWN.format("p")}
"""
_TRIGGERS = f"""
SELECT c.relname || '.' || t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE {_OWN.format("c")} AND NOT t.tgisinternal AND NOT c.relispartition
"""
_LABELS = f"""
SELECT y.typname, e.enumlabel FROM pg_enum AS e JOIN pg_type AS y ON y.oid = e.enumtypid
JOIN pg_namespace AS n ON n.oid = y.typnamespace WHERE {_OWN.format("y")}
"""
# Given to a transaction by one process, and read by the triggers that another release made.
_SETTINGS = f"""
SELECT (regexp_matches(p.prosrc, 'current_setting\\(''([a-z_]+[.][a-z_]+)''', 'g'))[1] FROM pg_proc AS p
JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE {_OWN.format("p")}
"""


def tables() -> Iterator[Part]:
    """Tables, each with its columns."""
    yield from _found(_RELATIONS)


def functions() -> Iterator[str]:
    yield from (name for (name,) in _found(_FUNCTIONS))


def triggers() -> Iterator[str]:
    yield from (name for (name,) in _found(_TRIGGERS))


def enumerations() -> Iterator[Part]:
    """Types of PostgreSQL, each with its values."""
    yield from _found(_LABELS)


def settings() -> Iterator[str]:
    yield from (name for (name,) in _found(_SETTINGS))


def _found(query: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()
