"""Finders of people, sessions and audit events for the console's search."""

from django.db.models import Q

from accounts.models import AuditEvent, Session, User
from config.console.finders import Finder, Term, finders, short_id
from config.console.template_tags import act


def people(term: Term) -> Q:
    return term.id() | term.word("email__contains") | Q(email_form=term.email_form)


def events(term: Term) -> Q:
    target = Q(target_id=str(term.ids[0]) if term.is_whole else term.text)
    return term.request_id("request_id") | target | term.word("target__istartswith")


finders.add(
    Finder(
        "People", 20, User, people, "Person, Client, Last sign-in",
        lambda row: (row.client and str(row.client), row.last_login),
        related=("client",), order=("email",), whole=("email", "email_form"),
    ),
    Finder(
        "Sessions", 50, Session, Term.id, "Session, Person, Started, Last used",
        lambda row: (str(row.user), row.started_at, row.last_used_at),
        name=short_id, related=("user",),
    ),
    Finder(
        "Audit", 140, AuditEvent, events, "Activity, By, Time",
        lambda row: (row.actor, row.at), name=act, order=("-at", "-id"),
    ),
)  # fmt: skip
