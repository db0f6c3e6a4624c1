"""A burst of streams on a busy machine: what becomes of answers that were made and paid, and of the ledger.

So many callers begin within five seconds, each a second time after its first stream, beside endless loops that take the
processors. With ``held`` the database is frozen for so many seconds in the middle.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

from django.db.models import Count, F, Max, Min, Q, Sum

from tests.bench.crowd_of_streams import Crowd, Seen, read_apart
from tests.bench.length import usual
from tests.bench.processes import tree
from tests.served.database import Database
from tests.tools.children import die_with
from usage.models import MonthlyUsage, UsageRecord

CHUNKS, EVERY = usual(50, short=5), 0.1
RAMP = usual(5.0, short=0.5)
TIMES = 2
# A settlement that had to wait for the database may keep its stream for so long.
PATIENCE = 90.0
BODY = json.dumps(
    {
        "model": "stand-in-small",
        # The text of each chunk is the moment at which it was due.
        "messages": [
            {"role": "user", "content": f"[[stand-in: tokens={CHUNKS} delay={EVERY} clock=yes]]"}
        ],
        "stream": True,
        "max_tokens": 400,
    }
)
LOOP = "while True: pass"
NOTED = re.compile(r"unraisable|Exception ignored")


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """``ends`` counts the records by their end; ``off`` are tokens by which the ledger is wrong."""

    seen: Seen
    ends: dict[str, int]
    off: int
    unraisable: int

    @property
    def lost(self) -> int:
        """Streams that began to answer and did not end whole."""
        return sum(
            number for how, number in self.seen.failures.items() if not how.startswith("refused")
        )

    @property
    def refused(self) -> int:
        return sum(
            number for how, number in self.seen.failures.items() if how.startswith("refused")
        )


def burst(
    *,
    port: int,
    log: Path,
    database: Database,
    tokens: Sequence[str],
    streams: int,
    loops: int,
    freeze: Callable[[], None] | None = None,
) -> Burst:
    """One burst at a service that writes this log. ``freeze`` is called once all have begun, in a thread of its own."""
    logged, since = log.stat().st_size, datetime.now(UTC)
    with busy(loops), ExitStack() as beside:
        if freeze is not None:
            beside.callback(_later(RAMP, freeze).join)
        seen = _streamed(port, tokens, streams=streams)
    _await_settlement(database)
    with log.open() as lines:
        lines.seek(logged)
        unraisable = len(NOTED.findall(lines.read()))
    with database.rows():
        ends = Counter(
            UsageRecord.objects.filter(opened_at__gte=since).values_list("end", flat=True)
        )
        return Burst(seen=seen, ends=dict(ends), off=_off(since, seen), unraisable=unraisable)


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that never wait."""
    parent = os.getpid()
    with ExitStack() as running:
        for _ in range(loops):
            process = subprocess.Popen(
                [sys.executable, "-c", LOOP],
                preexec_fn=lambda: die_with(parent, signal.SIGKILL),  # noqa: PLW1509 - only two system calls
            )
            running.callback(process.wait)
            running.callback(process.kill)
        yield


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A server whose kernel takes connections and bytes, while nobody answers."""
    processes = tree(pid)
    for each in processes:
        _send(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in processes:
            _send(each, signal.SIGCONT)


def _send(pid: int, sent: signal.Signals) -> None:
    try:
        os.kill(pid, sent)
    except ProcessLookupError:
        return


def _later(seconds: float, act: Callable[[], None]) -> Thread:
    def run() -> None:
        time.sleep(seconds)
        act()

    thread = Thread(target=run)
    thread.start()
    return thread


def _streamed(port: int, tokens: Sequence[str], *, streams: int) -> Seen:
    crowd = Crowd(
        host="127.0.0.1",
        port=port,
        path="/v1/llm/stream",
        body=BODY,
        tokens=tokens,
        streams=streams,
        chunks=CHUNKS,
        ramp=RAMP,
        patience=PATIENCE,
        times=TIMES,
    )
    return read_apart(crowd)


def _await_settlement(database: Database) -> None:
    give_up = time.monotonic() + PATIENCE
    with database.rows():
        while UsageRecord.objects.open().exists():
            if time.monotonic() > give_up:
                return
            time.sleep(0.2)


def _off(since: datetime, seen: Seen) -> int:
    """Tokens by which records differ from what was delivered, and totals from the records."""
    whole = UsageRecord.objects.filter(opened_at__gte=since, end=UsageRecord.End.DONE)
    made = whole.aggregate(calls=Count("pk"), least=Min("output_tokens"), most=Max("output_tokens"))
    held = UsageRecord.objects.filter(~Q(state=UsageRecord.State.OPEN)).aggregate(
        tokens=Sum(F("input_tokens") + F("output_tokens"), default=0)
    )["tokens"]
    totals = MonthlyUsage.objects.aggregate(
        used=Sum(F("input_used") + F("output_used"), default=0),
        reserved=Sum(F("input_reserved") + F("output_reserved"), default=0),
    )
    missing = max(0, seen.done - made["calls"]) * CHUNKS
    return (
        missing
        + (made["most"] or 0)
        - (made["least"] or 0)
        + abs(totals["used"] - held)
        + abs(totals["reserved"])
    )
