"""Finders of clients and people for the console's search, with what they may do and what they have spent."""

from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.models import Client, User
from config.composition.client_list import with_standing
from config.composition.person_state import chip_of, with_state
from config.console.finders import Finder, Term, finders
from config.console.tables import Chip, state_chip
from config.console.template_tags import dollars, instant
from usage.spending.columns import spent_by_person


def _clients(term: Term) -> Q:
    noted = term.word("contract__icontains", "manager__icontains", "notes__icontains")
    return term.id() | term.word("name__icontains", "licence__stripe_customer_id") | noted


def _people(term: Term) -> Q:
    return term.id() | term.word("email__contains") | Q(email_form=term.email_form)


def _standing(client: Any) -> tuple[Any, ...]:
    licence, budget = getattr(client, "licence", None), getattr(client, "budget", None)
    of = f" of {dollars(budget.monthly)}" if budget else ""
    return (
        state_chip(licence.status) if licence else Chip("stopped", "No licence"),
        str(licence.plan) if licence else "",
        client.people_count,
        f"{dollars(client.cost)}{of}",
    )


def _state(person: Any) -> tuple[Any, ...]:
    seen = instant(person.last_seen) if person.last_seen else "not signed in yet"
    return chip_of(person), str(person.client or ""), dollars(person.spent), seen


def _with_standing(clients: QuerySet[Any]) -> QuerySet[Any]:
    return with_standing(clients, problems={}, now=timezone.now())


def _with_state(people: QuerySet[Any]) -> QuerySet[Any]:
    now = timezone.now()
    found: QuerySet[Any] = with_state(people, now=now).annotate(spent=spent_by_person(now=now))
    return found


finders.add(
    Finder(
        "Clients", 10, Client, _clients, "Client, Status:chip, Plan, People:number, Spent this month:number",
        _standing, prepared=_with_standing, order=("name",), whole=("name",),
    ),
    Finder(
        "People", 20, User, _people, "Person, Status:chip, Client, Spent this month:number, Last seen:time",
        _state, prepared=_with_state,
        related=("client",), order=("email",), whole=("email", "email_form"),
    ),
)  # fmt: skip
