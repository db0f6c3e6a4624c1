"""Exports events as a file."""

from collections.abc import Callable, Iterator, Mapping
from json import dumps
from typing import Any

from django.db.models import QuerySet

from config.platform import exports
from config.platform.problems.problem import instant
from telemetry.models import Event

COLUMNS: Mapping[str, Callable[[Event], Any]] = {
    "id": lambda event: str(event.event_id),
    "client_id": lambda event: str(event.client_id),
    "user_id": lambda event: str(event.user_id),
    "name": lambda event: event.name,
    "app": lambda event: event.app,
    "shell_version": lambda event: event.shell_version,
    "occurred_at": lambda event: instant(event.occurred_at),
    "received_at": lambda event: instant(event.received_at),
    "properties": lambda event: event.properties,
}


def lines(rows: QuerySet[Event], *, ending: str, page: int = exports.PAGE) -> Iterator[bytes]:
    """Yields the bytes of a file, the newest event first: ``csv`` with a header, or ``ndjson``."""
    row_of = _csv_row if ending == "csv" else _row
    pages = exports.pages(rows, time="received_at", page=page)
    return exports.lines([*COLUMNS], (map(row_of, events) for events in pages), ending=ending)


def _row(event: Event) -> dict[str, Any]:
    return {name: value_of(event) for name, value_of in COLUMNS.items()}


def _csv_row(event: Event) -> dict[str, Any]:
    """No cell can start a formula: names, apps and versions begin with a letter, a digit or $.

    This also holds for spreadsheets that split at semicolons or tabs: semicolons are escaped here, tabs by JSON.
    """
    properties = dumps(event.properties, ensure_ascii=False).replace(";", "\\u003b")
    return _row(event) | {"properties": properties}
