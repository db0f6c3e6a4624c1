"""Makes a database as large as one that has been used for long: ``python -m tests.tools.grow --rows N``.

For a database that may be thrown away. Like manage.py it reads the variables of `make run`.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import django
from django.db import connection
from django.utils import timezone

from config.platform.env import addresses, reading
from tests.tools import Unready
from tests.tools.folders import LOCAL

MILLION = 1_000_000
LARGE = ("records", "tokens", "audit", "events")


def main(arguments: Sequence[str]) -> None:
    """Adds rows and reports each table; Unready for a database in use."""
    # Both import models, which exist only after django.setup().
    from config.composition.operation.demo import OPERATOR, PERSON
    from tests.tools.growth import Size, grow, has_people

    options = _parser().parse_args(arguments)
    if has_people(besides=(PERSON, OPERATOR)) and not options.yes:
        raise Unready(
            "There are people in this database, and what grows here stays in it. If it may be thrown away: --yes."
        )
    numbers = {
        name: options.rows if (own := getattr(options, name)) is None else own for name in LARGE
    }
    size = Size(people=options.people, clients=options.clients, **numbers)
    if min(getattr(size, name) for name in Size.__slots__) < 1:
        raise Unready("Of each there must be one at least.")
    began, added = perf_counter(), 0
    for table, number, seconds in grow(size=size, now=timezone.now()):
        added += number
        print(
            f"{table}: {number:,} rows in {seconds:.1f} s, {number / seconds:,.0f} a second, {_disk(table)} in all",
            flush=True,
        )
    seconds = perf_counter() - began
    print(f"grow: {added:,} rows in {seconds:.0f} s, {added / seconds:,.0f} a second")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.grow", description=__doc__)
    parser.add_argument("--rows", type=int, default=MILLION, help=f"of each of {', '.join(LARGE)}")
    for name in LARGE:
        parser.add_argument(f"--{name}", type=int, help="how many of these instead")
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--yes", action="store_true", help="also in a database with people in it")
    parser.add_argument(
        "--folder", type=Path, default=LOCAL, help="where `make run` keeps its data"
    )
    return parser


def _disk(table: str) -> str:
    """The size of a table with its indexes."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_size_pretty(pg_total_relation_size(%s))", [table])
        return str(cursor.fetchone()[0])


if __name__ == "__main__":
    local = _parser().parse_args().folder / "env"
    reading.env.read_env(local, recurse=False)
    # It takes indexes off, which only their owner may.
    if owner := addresses.owner_address(local):
        os.environ["DATABASE_URL"] = owner
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    try:
        main(sys.argv[1:])
    except Unready as error:
        sys.exit(str(error))
