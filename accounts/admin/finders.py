"""Finders of sessions, by their devices too, and of audit events for the console's search."""

from typing import Any

from django.db.models import Q

from accounts.models import AuditEvent, Session
from config.console.finders import Finder, Term, finders, short_id
from config.console.navigation import page_of
from config.console.tables import Chip, Link
from config.console.template_tags import act


def sessions(term: Term) -> Q:
    """By id, or by the beginning of the name of an install. The index distinguishes upper from lower case."""
    return term.id() | Q(device_fp__startswith=term.text)


def _state(session: Any) -> Chip:
    return Chip("over", "Ended") if session.ended_at else Chip("well", "Not ended")


def events(term: Term) -> Q:
    target = Q(target_id=str(term.ids[0]) if term.is_whole else term.text)
    return term.request_id("request_id") | target | term.word("target__istartswith")


finders.add(
    Finder(
        "Sessions", 50, Session, sessions, "Session, Person, Device, Install, State:chip, Last used:time",
        lambda row: (
            Link(str(row.user), page_of(row.user)), row.device, row.device_fp, _state(row), row.last_used_at,
        ),
        name=short_id, related=("user",),
    ),
    Finder(
        "Audit", 140, AuditEvent, events, "Activity, By, Time",
        lambda row: (row.actor, row.at), name=act, order=("-at", "-id"),
    ),
)  # fmt: skip
