"""Makes a database as large as one that has been used for long."""

from time import perf_counter
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.utils import timezone

from config.demo import OPERATOR, PERSON
from config.growth import Size, grow, has_people

MILLION = 1_000_000


class Command(BaseCommand):
    help = "Add rows by the million, to see that the service is still quick. For a database that may be thrown away."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--rows",
            type=int,
            default=MILLION,
            help="how many usage records, refresh tokens, audit events and telemetry events, each",
        )
        for name in ("records", "tokens", "audit", "events"):
            parser.add_argument(f"--{name}", type=int, help="how many of these instead")
        parser.add_argument("--people", type=int, default=10_000)
        parser.add_argument("--clients", type=int, default=500)
        parser.add_argument(
            "--yes", action="store_true", help="although there are people here who are no demo"
        )

    def handle(self, *args: Any, rows: int, yes: bool, **options: Any) -> None:
        if has_people(besides=(PERSON, OPERATOR)) and not yes:
            raise CommandError(
                "There are people in this database, and what grows here stays in it. If it may be thrown away: --yes."
            )
        size = Size(
            people=options["people"],
            clients=options["clients"],
            **{
                name: rows if options[name] is None else options[name]
                for name in ("records", "tokens", "audit", "events")
            },
        )
        if min(getattr(size, name) for name in Size.__slots__) < 1:
            raise CommandError("Of each there must be one at least.")
        began, added = perf_counter(), 0
        for table, number, seconds in grow(size=size, now=timezone.now()):
            added += number
            self.stdout.write(
                f"{table}: {number:,} rows in {seconds:.1f} s, {number / seconds:,.0f} a second, {_disk(table)} in all"
            )
        seconds = perf_counter() - began
        self.stdout.write(
            f"grow: {added:,} rows in {seconds:.0f} s, {added / seconds:,.0f} a second"
        )


def _disk(table: str) -> str:
    """What a table takes with its indexes."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_size_pretty(pg_total_relation_size(%s))", [table])
        row = cursor.fetchone()
    assert row is not None
    return str(row[0])
