"""A system check for invalid indexes, which an interrupted concurrent build leaves behind."""

from django.core import checks
from django.db import connections

from config.platform.db.checks import of_each_database

# An index that is being built is invalid too, but no leftover. Builds of other roles are visible without a name.
_INVALID = """
SELECT quote_ident(space.nspname) || '.' || quote_ident(class.relname) FROM pg_index AS index
JOIN pg_class AS class ON class.oid = index.indexrelid
JOIN pg_namespace AS space ON space.oid = class.relnamespace
WHERE NOT index.indisvalid AND pg_table_is_visible(index.indrelid) AND NOT EXISTS (
    SELECT FROM pg_stat_progress_create_index AS built
    WHERE built.datname = current_database() AND coalesce(built.index_relid, index.indexrelid) = index.indexrelid
) ORDER BY 1
"""


@of_each_database
def no_invalid_indexes(alias: str) -> list[checks.CheckMessage]:
    """Warns of each index that PostgreSQL maintains but never uses, with the command that removes it."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_INVALID)
        return [_invalid_index(name) for (name,) in cursor.fetchall()]


def _invalid_index(index: str) -> checks.CheckMessage:
    return checks.Warning(
        f"The index {index} is invalid: its build failed or was interrupted.",
        hint=f"DROP INDEX CONCURRENTLY {index}; then manage.py migrate, which builds what is missing.",
        id="config.W001",
    )
