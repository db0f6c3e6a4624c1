"""A table of books: one column, one row at first."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from config.platform.db.connections import close_pool, release_connection


@contextmanager
def shelf() -> Iterator[None]:
    """From its beginning there is one connection, so that each statement meets what the last one left."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE shelf (book varchar(10) PRIMARY KEY)")
        cursor.execute("INSERT INTO shelf VALUES ('Emma')")
    close_pool()
    yield
    release_connection()
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE shelf")


def books() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT book FROM shelf ORDER BY book")
        return [book for (book,) in cursor.fetchall()]


def put(*books: str) -> None:
    with connection.cursor() as cursor:
        for book in books:
            cursor.execute("INSERT INTO shelf VALUES (%s)", [book])
    release_connection()
