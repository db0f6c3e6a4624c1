"""Measures the service against references: ``python -m tests.bench [--rounds N | --short] [PART...]``.

Run it beside the servers of ``python -m tests.tools with``, as `make bench` does. It judges nothing by its exit code;
what it found is in ``.local/bench``, and docs/benchmarks.md says how to read it. ``--short`` writes nothing and only
shows that every part still runs: one that does not, or that has no figure, ends it with an error.
"""

import argparse
import importlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import django

from tests.bench import report
from tests.bench.durable import durable_database
from tests.bench.figures import Line
from tests.bench.length import SHORT
from tests.tools.folders import LOCAL, claim

# In this order.
PARTS = ("startup", "status", "complete", "streams", "chunks", "auth", "telemetry", "scaling")
ROUNDS = 3
BASE_URL = "http://127.0.0.1:8000"


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    os.environ["BASE_URL"] = BASE_URL
    if options.short:
        os.environ[SHORT] = "yes"
        options.rounds = 1
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    # Ended by a signal, it still puts away what it made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began, load_before = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with durable_database(folder) as postgres:
            # Settings read where the database is, and everything else stands on models.
            django.setup()
            stage = importlib.import_module("tests.bench.stage")
            with stage.stage(folder, postgres) as made:
                lines = _measured(made, options.parts or PARTS, options.rounds)
    if options.short:
        return 0
    seconds = time.monotonic() - began
    under = report.circumstances(rounds=options.rounds, seconds=seconds, load_before=load_before)
    folder = claim(claim(LOCAL) / "bench")
    where = report.write(lines, folder, under)
    print(f"\nThe report is {where}", flush=True)
    return 0


def _measured(stage: Any, parts: list[str], rounds: int) -> list[Line]:
    lines: list[Line] = []
    for number, part in enumerate(parts, 1):
        began = time.monotonic()
        print(f"{part} ({number} of {len(parts)})", flush=True)
        found = importlib.import_module(f"tests.bench.{part}").measure(stage, rounds=rounds)
        if not any(line.ours for line in found):
            raise SystemExit(f"{part} has no figure.")
        for line in found:
            print(f"  {line.told()}", flush=True)
        print(f"  took {time.monotonic() - began:.0f} s", flush=True)
        lines += found
    return lines


def _part(name: str) -> str:
    # Not by argparse' own list of choices, which before Python 3.12 refuses that none is named.
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"there is no part {name!r}")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("parts", nargs="*", type=_part, metavar="PART", help=", ".join(PARTS))
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
