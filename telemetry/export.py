"""Exports events as a file, in pages by index, so that no connection waits for a browser."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from json import dumps
from typing import Any

from django.db.models import Q, QuerySet

from config.api.problems import instant
from config.db.connections import release_connection
from telemetry.models import Event

# Content type by the ending of the file's name.
FORMATS: Mapping[str, str] = {
    "csv": "text/csv; charset=utf-8",
    "ndjson": "application/x-ndjson",
}
PAGE = 1_000
COLUMNS = (
    "id",
    "client_id",
    "user_id",
    "name",
    "app",
    "shell_version",
    "occurred_at",
    "received_at",
    "properties",
)


def lines(rows: QuerySet[Event], *, ending: str, page: int = PAGE) -> Iterator[bytes]:
    """Yields the bytes of a file page by page, newest event first: ``csv`` with a header, or ``ndjson``.

    Omits events received during the export, and perhaps events pruned meanwhile.
    """
    write = _csv if ending == "csv" else _ndjson
    if ending == "csv":
        yield _csv_lines([COLUMNS])
    ordered = rows.order_by("-received_at", "-id")
    after: Event | None = None
    while found := list(_older(ordered, after)[:page]):
        after = found[-1]
        release_connection()
        yield write(found)


def _older(rows: QuerySet[Event], after: Event | None) -> QuerySet[Event]:
    if after is None:
        return rows
    # The first condition is redundant, but lets PostgreSQL use the index.
    return rows.filter(received_at__lte=after.received_at).filter(
        Q(received_at__lt=after.received_at) | Q(id__lt=after.pk)
    )


def _row(event: Event) -> dict[str, Any]:
    return {
        "id": str(event.event_id),
        "client_id": str(event.client_id),
        "user_id": str(event.user_id),
        "name": event.name,
        "app": event.app,
        "shell_version": event.shell_version,
        "occurred_at": instant(event.occurred_at),
        "received_at": instant(event.received_at),
        "properties": event.properties,
    }


def _ndjson(events: Sequence[Event]) -> bytes:
    return "".join(
        f"{dumps(_row(each), ensure_ascii=False, separators=(',', ':'))}\n" for each in events
    ).encode()


def _csv(events: Sequence[Event]) -> bytes:
    """No cell can start a formula: names, apps and versions begin with a letter, a digit or $.

    This also holds for spreadsheets that split at semicolons or tabs: semicolons are escaped here, tabs by JSON.
    """
    rows = [_row(each) for each in events]
    return _csv_lines(
        [(*(each[name] for name in COLUMNS[:-1]), _escaped(each["properties"])) for each in rows]
    )


def _escaped(properties: dict[str, Any]) -> str:
    return dumps(properties, ensure_ascii=False).replace(";", "\\u003b")


def _csv_lines(rows: Sequence[Sequence[Any]]) -> bytes:
    text = StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
