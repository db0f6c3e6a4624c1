"""Moves abandoned attempts of before to their records, in batches that lock few records at a time."""

from typing import Any

from django.db import migrations

# The trigger takes a row that is written again to its record.
MOVE = """
WITH moved AS (
    DELETE FROM usage_leftattempt
    WHERE record_id IN (SELECT record_id FROM usage_leftattempt ORDER BY record_id LIMIT 500) RETURNING *
)
INSERT INTO usage_leftattempt SELECT * FROM moved ORDER BY asked_at, id
"""
IS_LEFT = "SELECT EXISTS (SELECT FROM usage_leftattempt)"


def move(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(IS_LEFT)
        while cursor.fetchone()[0]:
            cursor.execute(MOVE)
            cursor.execute(IS_LEFT)


class Migration(migrations.Migration):
    """A batch is a transaction: a record has its attempts in one of both places, whenever this ends."""

    atomic = False

    dependencies = [("usage", "0032_left_attempts_are_on_the_record")]

    operations = [migrations.RunPython(move, migrations.RunPython.noop)]
