"""The kinds of what needs attention, which apps declare beside the code that they are about.

``templates/admin/attention`` has the sentence of each kind, and ``templates/mail/attention``, of those that are alerts,
the subject of a notification, in the first line and without names of people, and the text of its mail.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from django.db.models import QuerySet

from config.platform.declarations import Declarations

# The number of rows of one kind that are named; the others are summed.
SHOWN = 3
ONE_PERSON = 1
# A finding that is no row of a table.
Finding = SimpleNamespace
Rows = QuerySet[Any] | Iterable[Any]


class Level(IntEnum):
    ACT = 0
    WATCH = 1


@dataclass(frozen=True, slots=True)
class Alert:
    """The step that operators can take about the findings of a kind, of which they are notified.

    ``after`` says when one is raised. ``is_mailed_by_rule`` where the rule that notices it mails its beginning itself.
    """

    step: str
    after: str = ""
    is_mailed_by_rule: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """``area`` is the entry of the sidebar under which it counts, ``right`` the permission to see it.

    ``rows`` are those of a query, or found otherwise; ``then`` makes of the rows of a query what is shown. ``since`` is
    the attribute of a row that says since when, ``on`` the one with what ``acts`` are done on, of which the first that
    is possible is offered. ``whom`` is a text, or a number of people. A row may have a ``level``, a ``whom`` and
    ``acts`` of its own, and ``is_alert`` where only some rows of a kind are alerts.
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
    whom: str | int = ""
    then: Callable[[QuerySet[Any], datetime], Iterable[Any]] | None = None
    # The number of rows that are named, beside one item for the number of the others.
    shown: int = SHOWN
    alert: Alert | None = None

    def found(self, now: datetime) -> Rows:
        return self.rows.all() if isinstance(self.rows, QuerySet) else self.rows(now)


kinds: Declarations[Kind] = Declarations(lambda kind: kind.name)


def in_order() -> list[Kind]:
    return sorted(kinds, key=lambda kind: kind.place)
