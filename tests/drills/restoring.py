"""Time to copy and restore a database: ``python -m tests.drills.restoring --rows N...``.

Beside nothing else: needs six times the room of the database in the folder, which is emptied at the end. It is grown to
so many rows in all, copied, grown by a tenth more, lost and restored, by the commands of docs/operating.md.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from tests.drills.recovery import Documented, Running, archiving, restored
from tests.tools.folders import ROOT
from tests.tools.postgres import Postgres
from tests.tools.variables import for_tests, outside

KINDS = ("records", "tokens", "audit", "events")
SHARE = 10
GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    rows: int
    database: float
    copied: float
    laid_out: float
    log: float
    replayed: float

    def told(self) -> str:
        return (
            f"{self.rows:,} rows, {self.database:.2f} GiB: copied in {self.copied:.1f} s, laid out in"
            f" {self.laid_out:.1f} s, opened after {self.log:.2f} GiB of log in {self.replayed:.1f} s"
        )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.drills.restoring", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--folder", type=Path, help="where there is room, with a short path")
    options = parser.parse_args(arguments)
    for rows in options.rows:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            print(measured(Path(folder), rows).told(), flush=True)


def measured(folder: Path, rows: int) -> Figures:
    lost, new = folder / "lost", folder / "new"
    for each in (lost, new):
        each.mkdir()
    environ = {**outside(os.environ), **for_tests(folder), "CACHE_URL": ""}

    def grown(server: Postgres) -> None:
        child = server.start()
        try:
            _run({**environ, "DATABASE_URL": server.url}, "manage.py", "migrate")
            _grow({**environ, "DATABASE_URL": server.url}, rows)
        finally:
            child.stop()

    with archiving(lost, grown) as running:
        began = time.monotonic()
        running.run(Documented.read().nightly)
        copied = time.monotonic() - began
        database = _size(running.backup / "base")
        before = _size(running.backup / "wal")
        _grow({**environ, "DATABASE_URL": running.server.url}, rows // SHARE)
        moment = datetime.now(UTC)
        with psycopg.connect(running.server.url) as later:
            later.execute("CREATE TABLE later ()")
        running.die()
        log = _size(running.backup / "wal") - before
        began = time.monotonic()
        with restored(new, running, moment) as opened:
            laid_out = opened.laid_out_at - began
            _wait_until_open(opened)
            replayed = time.monotonic() - opened.laid_out_at
    return Figures(
        rows=rows,
        database=database,
        copied=copied,
        laid_out=laid_out,
        log=log,
        replayed=replayed,
    )


def _grow(environ: dict[str, str], rows: int) -> None:
    each = [f"--{kind}={rows // len(KINDS)}" for kind in KINDS]
    _run(environ, "-m", "tests.tools.grow", "--yes", *each)


def _run(environ: dict[str, str], *arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environ, check=True)


def _wait_until_open(running: Running) -> None:
    with psycopg.connect(running.server.url, autocommit=True) as connection:
        while connection.execute("SELECT pg_is_in_recovery()").fetchone() != (False,):
            time.sleep(0.05)


def _size(folder: Path) -> float:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()) / GIB


if __name__ == "__main__":
    main(sys.argv[1:])
