"""Exports the ledger as a file."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import QuerySet

from config.platform import exports
from config.platform.db.connections import release_connection
from config.platform.money import decimal
from config.platform.problems.problem import instant
from usage.models import UsageRecord
from usage.spending.statements import Attempt, attempts_of

COLUMNS = (
    "id",
    "opened_at",
    "settled_at",
    "client_id",
    "user_id",
    "model",
    "provider",
    "request_id",
    "streamed",
    "state",
    "source",
    "end",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_usd",
    "caller_user",
    "metadata",
    "key_id",
    "cache_write_tokens",
    "capped_input",
    "first_output_at",
    "error_code",
    "failures",
)
_OWN = {"cost_usd", "caller_user", "metadata"}


def lines(rows: QuerySet[UsageRecord], *, ending: str, page: int = exports.PAGE) -> Iterator[bytes]:
    """Yields the bytes of a file, the newest call first: ``csv`` with a header, or ``ndjson``.

    An abandoned attempt is a line of its own behind its call; all that failed are in the call's ``failures``.
    """
    pages = exports.pages(rows, time="opened_at", page=page)
    return exports.lines(COLUMNS, map(_rows, pages), ending=ending)


def _rows(records: list[UsageRecord]) -> list[dict[str, Any]]:
    attempts = attempts_of(records)
    # Nothing waits for a browser with a connection.
    release_connection()
    return [
        row for each in records for row in (_row(each), *_attempt_rows(each, attempts[each.pk]))
    ]


def _row(record: UsageRecord) -> dict[str, Any]:
    """A call; its cost is in dollars with six decimals, and None if it has no prices or still runs."""
    labels = record.labels or {}
    return {
        **{name: getattr(record, name) for name in COLUMNS if name not in _OWN},
        "id": str(record.pk),
        "opened_at": instant(record.opened_at),
        "settled_at": instant(record.settled_at) if record.settled_at else None,
        "first_output_at": instant(record.first_output_at) if record.first_output_at else None,
        "client_id": str(record.client_id),
        "user_id": str(record.user_id),
        "key_id": str(record.key_id) if record.key_id else None,
        "cost_usd": None if record.cost is None else str(decimal(record.cost)),
        "caller_user": labels.get("user"),
        "metadata": labels.get("metadata"),
    }


def _attempt_rows(record: UsageRecord, attempts: Sequence[Attempt]) -> Iterator[dict[str, Any]]:
    """Lines of their own for what providers may bill and no person is charged; the first has the id ``<call>/1``."""
    for number, each in enumerate(attempts, 1):
        source = UsageRecord.Source.PROVIDER if each.is_reported else UsageRecord.Source.ESTIMATED
        yield {
            **_row(record),
            "id": f"{record.pk}/{number}",
            "opened_at": instant(each.asked_at),
            "settled_at": instant(each.abandoned_at),
            "provider": each.provider,
            "state": "left",
            "source": source.value,
            "end": UsageRecord.End.TIMEOUT.value,
            "input_tokens": each.input,
            "cached_input_tokens": 0,
            "capped_input": 0,
            "cache_write_tokens": 0,
            "output_tokens": each.output,
            "reasoning_tokens": 0,
            "first_output_at": None,
            "error_code": None,
            "failures": None,
            "cost_usd": None if each.cost is None else str(decimal(each.cost)),
        }
