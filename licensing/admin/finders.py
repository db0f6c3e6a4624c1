"""The finder of clients, with the state of their licences, for the console's search."""

from typing import Any

from django.db.models import Q

from accounts.models import Client
from config.console.finders import Finder, Term, finders
from config.console.tables import state_chip


def clients(term: Term) -> Q:
    return term.id() | term.word("name__icontains", "licence__stripe_customer_id")


def _status(client: Client) -> Any:
    licence = getattr(client, "licence", None)
    return state_chip(licence.status) if licence else ""


finders.add(
    Finder(
        "Clients", 10, Client, clients, "Client, Status, Since",
        lambda row: (_status(row), row.created_at),
        related=("licence",), order=("name",), whole=("name",),
    )
)  # fmt: skip
