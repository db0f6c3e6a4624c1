"""Writes a client's month of model calls."""

from collections.abc import Iterable, Sequence
from datetime import date
from json import dumps
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from accounts.management.terminal import month_argument, refusals_as_errors
from accounts.models import Client
from accounts.people.clients import find_client
from config.platform.exports import csv_lines
from config.platform.money import decimal
from usage.spending.statements import NAMES, Line, Statement, parts, values

WIDTHS = (9, 15, 15, 15, 16, 11, 10)
NAME_WIDTH = 44
PLURALS = {"person": "people", "model": "models"}


class Command(BaseCommand):
    help = (
        "Write what a client's settled model calls of a month come to, by person and by model: calls, tokens, cost in "
        "dollars, abandoned calls, and calls without prices, whose cost is not known. Attempts that a provider left "
        "without an answer, and may bill, are listed separately, by provider, and are in no total."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--client", required=True, help="its name, or its id")
        parser.add_argument(
            "--month", required=True, type=month_argument, help="as 2026-11, in UTC"
        )
        parser.add_argument("--format", choices=("text", "csv", "json"), default="text")

    def handle(self, *args: Any, client: str, month: date, **options: Any) -> None:
        with refusals_as_errors():
            found = find_client(client)
        write = {"text": self._text, "csv": self._csv, "json": self._json}[options["format"]]
        write(found, Statement(client_id=found.pk, month=month))

    def _text(self, client: Client, statement: Statement) -> None:
        self.stdout.write(f"{client} ({client.pk}), {statement.month:%Y-%m} (UTC)\n\n")
        unpriced = []
        for title, lines in (("person", statement.people()), ("model", statement.models())):
            self.stdout.write(_columns(title, NAMES))
            for line in lines:
                self.stdout.write(_columns(line.name, _numbers(line)))
                if title == "model" and line.unpriced:
                    unpriced.append(f"{line.name} ({_counted(line.unpriced, 'call')})")
            self.stdout.write("\n")
        self.stdout.write(_columns("total", _numbers(statement.total())))
        if unpriced:
            self.stdout.write(f"\nWithout prices, and not in the cost: {', '.join(unpriced)}")
        for each in statement.abandoned():
            attempts = _counted(each.calls, "attempt")
            self.stdout.write(
                f"\nAbandoned at {each.name}, in the total cost alone: {attempts}, {_most(each)}"
            )
        if running := statement.running():
            self.stdout.write(f"\nStill running, and in no line: {_counted(running, 'call')}")

    def _csv(self, client: Client, statement: Statement) -> None:
        self._rows([("of", "name", *NAMES)])
        for of, lines in (*parts(statement), ("total", [statement.total()])):
            for line in lines:
                self._rows([(of, line.name, *values(line).values())])

    def _rows(self, rows: Sequence[Sequence[Any]]) -> None:
        self.stdout.write(csv_lines(rows).decode(), ending="")

    def _json(self, client: Client, statement: Statement) -> None:
        """One object, a row on each line, written as it is read."""
        head = {"id": str(client.pk), "name": client.name}
        self.stdout.write(f'{{"client": {dumps(head)}, "month": "{statement.month:%Y-%m}",')
        for of, lines in parts(statement):
            self.stdout.write(f'"{PLURALS.get(of, of)}": [', ending="")
            comma = "\n"
            for line in lines:
                row = dumps({"name": line.name, **values(line)})
                self.stdout.write(f"{comma}{row}", ending="")
                comma = ",\n"
            self.stdout.write("],")
        total = dumps(values(statement.total()))
        self.stdout.write(f'"total": {total}, "running": {statement.running()}}}')


def _numbers(line: Line) -> list[str]:
    return [each if isinstance(each, str) else f"{each:,}" for each in values(line).values()]


def _most(attempts: Line) -> str:
    """Returns the most that a provider may bill for abandoned attempts."""
    if attempts.unpriced == attempts.calls:
        return "of an unknown cost"
    unknown = f", and {attempts.unpriced:,} of an unknown cost" if attempts.unpriced else ""
    return f"up to ${decimal(attempts.cost)}{unknown}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _columns(name: str, values: Iterable[str]) -> str:
    cells = (value.rjust(width) for value, width in zip(values, WIDTHS, strict=True))
    return f"{name:{NAME_WIDTH}}{''.join(cells)}"
