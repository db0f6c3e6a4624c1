"""Lists settled calls that were charged more output than was reserved for them."""

from datetime import date
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandParser

from accounts.management.terminal import month_argument, refusals_as_errors
from accounts.models import Client
from accounts.people.clients import find_client
from config.platform.db.connections import database_now
from config.platform.money import in_dollars
from usage.spending.above_reservation import Above, calls_above, charged_above

SMALLER = (
    "What was charged wrongly and stayed within its reservation cannot be told apart from other calls. A charge is "
    'lowered in the console, by "Lower charge" of the call.'
)


class Command(BaseCommand):
    help = (
        "List settled calls that were charged more output than was reserved for them, by month and client: those whose "
        "provider's report may have been wrong, or read wrongly. Nothing is changed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--since", type=month_argument, help="as 2026-11, in UTC; else the first call's"
        )
        parser.add_argument("--client", help="its name, or its id; else all")
        parser.add_argument("--calls", action="store_true", help="each call too, by its id")

    def handle(
        self, *args: Any, since: date | None, client: str | None, calls: bool, **options: Any
    ) -> None:
        with refusals_as_errors():
            found = find_client(client).pk if client else None
        count, now = 0, database_now()
        for line in charged_above(since=since, client_id=found, now=now):
            count += line.calls
            self._write(line, calls=calls)
        self.stdout.write(f"charges_above_reservation: {count:,} found. {SMALLER}")

    def _write(self, line: Above, *, calls: bool) -> None:
        unpriced = f", {line.unpriced:,} without prices" if line.unpriced else ""
        self.stdout.write(
            f"{line.month:%Y-%m}  {_name(line.client_id)}: {line.calls:,} calls, {line.tokens:,} tokens above their "
            f"reservations, {in_dollars(line.cost)} of output{unpriced}"
        )
        if not calls:
            return
        for call in calls_above(line.month, client_id=line.client_id).iterator():
            self.stdout.write(
                f"  {call.pk}  {call.opened_at:%Y-%m-%d %H:%M}  {call.model} at {call.provider}: "
                f"{call.output_tokens:,} of {call.reserved_output:,} reserved"
            )


def _name(client_id: UUID) -> str:
    client = Client.objects.filter(pk=client_id).first()
    return f"{client.name} ({client_id})" if client else str(client_id)
