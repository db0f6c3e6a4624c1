"""What a table of telemetry costs to ask as it grows: plans, pages read and milliseconds, of a small and a large one.

``python -m tests.tools with -- python -m tests.bench.telemetry_size [rows]``

Rows are spread evenly over ninety days, twenty apps, ten versions and thirty names; one more app was last heard of
long ago, and one day has as many rows as a day of a hundred million has. A question whose pages do not grow with the
table stays as quick at any size.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from statistics import median
from typing import Any
from uuid import UUID, uuid4

import django
from django.db import connection

SMALL, LARGE = 10_000, 5_000_000
DENSE_DAY = 100_000_000 // 90
DAY = timedelta(days=1)
_FILL = """
INSERT INTO telemetry_event
    (event_id, client_id, user_id, name, app, shell_version, occurred_at, received_at, properties)
SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'event.' || n %% 30,
       CASE WHEN n < %(rows)s / 50 THEN 'left' ELSE 'app-' || n / 30 %% 20 END, '1.0.' || n / 600 %% 10, at, at,
       '{"ms": 12, "kind": "sheet", "from": "the list of files"}'
FROM (SELECT n, %(first)s + n * (%(last)s - %(first)s) / %(rows)s AS at FROM generate_series(0, %(rows)s - 1) n) row
"""
Question = Callable[[], Any]


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each size and question; always 0, because it judges nothing."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    now = datetime.now(UTC)
    for rows in (SMALL, int(arguments[0]) if arguments else LARGE):
        _fill(rows, now=now)
        print(f"\n{rows:,} rows and a day of {_dense(rows):,}: {_sizes()}")
        for name, plan in _plans(now):
            print(f"  {name:42}{_told(plan)}")
        for name, milliseconds in _volumes(now):
            print(f"  {name:42}{milliseconds:9.1f} ms")
        for kind, made in (("random ids", uuid4), ("ids that begin with a time", _timed)):
            print(f"  {f'500 taken in, {kind}':42}{_taken_in(now, made):9.1f} ms")
    return 0


def _dense(rows: int) -> int:
    return DENSE_DAY if rows > SMALL else rows // 10


def _fill(rows: int, *, now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE telemetry_event")
        first = now - timedelta(days=91)
        day = now - timedelta(days=45)
        for number, start, end in (
            (rows, first, now),
            (_dense(rows), day, day + timedelta(days=1)),
        ):
            cursor.execute(_FILL, {"rows": number, "first": start, "last": end})
        cursor.execute("VACUUM ANALYZE telemetry_event")


def _sizes() -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, pg_relation_size(oid) / 1048576 FROM pg_class"
            " WHERE relname = 'telemetry_event' OR oid IN"
            " (SELECT indexrelid FROM pg_index WHERE indrelid = 'telemetry_event'::regclass) ORDER BY 2 DESC"
        )
        return ", ".join(f"{name} {size} MiB" for name, size in cursor.fetchall())


def _plans(now: datetime) -> Iterator[tuple[str, dict[str, Any]]]:
    from telemetry.export import PAGE, _older
    from telemetry.models import Event
    from telemetry.pruning import BATCH
    from telemetry.volumes import by_version

    middle = Event(pk=1, received_at=now - timedelta(days=45))
    rows = Event.objects.order_by("-received_at", "-id")
    chosen = {
        "all": rows,
        "a name": rows.filter(name="event.7"),
        "an app": rows.filter(app="app-7"),
        "an app that left": rows.filter(app="left"),
        "an app and version": rows.filter(app="app-7", shell_version="1.0.3"),
        "an app and a name": rows.filter(app="app-7", name="event.7"),
        "an unknown app": rows.filter(app="none"),
    }
    for name, each in chosen.items():
        yield f"a page of the list: {name}", _explained(each[:100])
        yield f"a page of a file: {name}", _explained(_older(each, middle)[:PAGE])
    dense: date = (now - timedelta(days=45)).date()
    yield "the dense day counted", _explained(by_version(dense))
    oldest = Event.objects.filter(received_at__lt=now - timedelta(days=90)).order_by("received_at")
    yield f"{BATCH:,} to be pruned", _explained(oldest.values_list("pk", "received_at")[:BATCH])


def _explained(rows: Any) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(rows.explain(format="json", analyze=True, buffers=True))[0]
    return plan


def _volumes(now: datetime) -> Iterator[tuple[str, float]]:
    """Milliseconds of what the night counts, all days and the next one, and of the page of the dense day then."""
    from telemetry.models import DailyVolume
    from telemetry.volumes import count_days, volumes

    dense = now - timedelta(days=45)
    DailyVolume.objects.all().delete()
    for name, work in (
        ("every day but one counted for the first time", lambda: count_days(now=now - DAY)),
        ("the next day counted", lambda: count_days(now=now)),
        ("volumes of the dense day, counted", lambda: volumes(day=dense.date())),
    ):
        began = time.perf_counter()
        work()
        yield name, (time.perf_counter() - began) * 1000


def _told(plan: dict[str, Any]) -> str:
    top = plan["Plan"]
    pages = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
    return f"{plan['Execution Time']:9.1f} ms{pages:9,} pages  {' < '.join(_nodes(top))}"


def _nodes(node: dict[str, Any]) -> Iterator[str]:
    yield f"{node['Node Type']} {node.get('Index Name', '')}".strip()
    for each in node.get("Plans", ()):
        yield from _nodes(each)


def _timed() -> UUID:
    """An id like those of version 7."""
    return UUID(int=time.time_ns() // 1_000_000 << 80 | 7 << 76 | uuid4().int & (1 << 76) - 1)


def _taken_in(now: datetime, made: Callable[[], UUID]) -> float:
    """Milliseconds of the middle one of 21 batches, from parsed to committed."""
    from telemetry.intake import take_in

    taken = []
    for _ in range(21):
        at = now.isoformat()
        events = [{"id": str(made()), "name": "event.7", "occurred_at": at} for _ in range(500)]
        began = time.perf_counter()
        take_in(batch={"events": events}, client_id=uuid4(), user_id=uuid4(), now=now)
        taken.append(time.perf_counter() - began)
    return median(taken) * 1000


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
