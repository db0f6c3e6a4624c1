"""Writes rows of a table as lines of a file, read in pages by index, so that no connection waits for a browser."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from json import dumps
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet

from config.platform.db.connections import release_connection

Row = TypeVar("Row", bound=Model)
# The position before a formula, in a cell or in the parts into which some spreadsheets split one.
FORMULA = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=[=+\-@＝＋－＠\t\r\n])")
PAGE = 1_000


def pages(rows: QuerySet[Row], *, time: str, page: int = PAGE) -> Iterator[list[Row]]:
    """Yields rows in pages, newest first by the column ``time``; may miss rows added or deleted meanwhile."""
    ordered = rows.order_by(f"-{time}", "-id")
    after: Row | None = None
    while batch := list(_older(ordered, after, time)[:page]):
        after = batch[-1]
        release_connection(rows.db)
        yield batch


def _older(rows: QuerySet[Row], after: Row | None, time: str) -> QuerySet[Row]:
    if after is None:
        return rows
    at = getattr(after, time)
    # The first condition is redundant, but lets PostgreSQL use the index.
    return rows.filter(**{f"{time}__lte": at}).filter(Q(**{f"{time}__lt": at}) | Q(id__lt=after.pk))


def lines(
    columns: Sequence[str], pages: Iterable[Iterable[Mapping[str, Any]]], *, ending: str
) -> Iterator[bytes]:
    """Yields the bytes of a file of rows: ``csv`` with a header, in which JSON is a text, or ``ndjson``."""
    if ending == "csv":
        yield csv_lines([columns])
    for rows in pages:
        if ending == "csv":
            yield csv_lines([_cell(row[name]) for name in columns] for row in rows)
        else:
            compact = (dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
            yield "".join(f"{line}\n" for line in compact).encode()


def _cell(value: Any) -> Any:
    return dumps(value, ensure_ascii=False) if isinstance(value, dict) else value


def csv_lines(rows: Iterable[Iterable[Any]]) -> bytes:
    """Yields lines of CSV in which no text can start a formula: operators and callers choose some names."""
    text = StringIO()
    csv.writer(text).writerows(map(_defused, row) for row in rows)
    return text.getvalue().encode()


def _defused(cell: Any) -> Any:
    return FORMULA.sub("'", cell) if isinstance(cell, str) else cell
