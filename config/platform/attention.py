"""Kinds of findings that need attention, which apps declare beside the code that they are about.

``templates/admin/attention`` has the sentence of each kind. ``templates/mail/attention`` has, for kinds that are
alerts, the subject of a notification (its first line, without names of people) and the text of its mail.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from types import SimpleNamespace
from typing import Any, NamedTuple

from django.db.models import QuerySet

from config.platform.declarations import Declarations

# The number of rows of one kind that are listed; the others are counted.
SHOWN = 3
ONE_PERSON = 1
# A finding that is not a row of a table.
Finding = SimpleNamespace
Rows = QuerySet[Any] | Iterable[Any]


def number_of(number: int, noun: str) -> str:
    """A number with its noun, for ``affected``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Level(IntEnum):
    ACT = 0
    WATCH = 1


class Door(NamedTuple):
    """A page that answers a finding where no act on a row does: its label, the right to use it, route and query."""

    label: str
    right: str
    route: str
    query: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """The notification of a kind's findings, with the step that operators can take.

    ``after`` is the condition under which it is raised. ``is_mailed_by_rule``: the rule that notices it mails
    its beginning itself.
    """

    step: str
    after: str = ""
    is_mailed_by_rule: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of findings: ``area`` is its entry in the sidebar, ``right`` the permission to see it.

    ``rows`` is a query, or a function that finds rows; ``then`` turns the rows of a query into findings. ``since``
    names the attribute of a row with its beginning, ``on`` the one with the object of ``acts``, of which the first
    possible one is offered. ``affected`` is a text, or a number of people. A row may have its own ``level``,
    ``affected`` and ``acts``, and has ``is_alert`` where only some rows of a kind are alerts. ``client`` names the
    attribute with the id of the client that a row is about; "" for kinds about no client.
    """

    name: str
    # Its place among the findings of one level and time.
    place: int
    area: str
    right: str
    rows: QuerySet[Any] | Callable[[datetime], Rows]
    level: Level = Level.WATCH
    since: str = "since"
    on: str = ""
    acts: str = ""
    # The label of the act beside a finding, where its own is longer than a row has room for.
    label: str = ""
    affected: str | int = ""
    client: str = ""
    then: Callable[[QuerySet[Any], datetime], Iterable[Any]] | None = None
    # The number of rows that are listed, beside one item that counts the others.
    shown: int = SHOWN
    alert: Alert | None = None
    # The page that answers a finding where no act on a row does.
    door: Door | Callable[[Any], Door] | None = None
    # Merges findings that differ only in their names; alerts are notified one by one.
    merged: Callable[[list[Any]], Iterable[Any]] | None = None

    def find(self, now: datetime) -> Rows:
        return self.rows.all() if isinstance(self.rows, QuerySet) else self.rows(now)


kinds: Declarations[Kind] = Declarations(lambda kind: kind.name)


def in_order() -> list[Kind]:
    return sorted(kinds, key=lambda kind: kind.place)
