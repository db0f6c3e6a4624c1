"""Tables of the console's pages, which ``parts/table.html`` renders; on a phone each row becomes a card."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

# Classes of the style sheet by the kind of a column.
CSS = {"text": "", "number": "number", "time": "time", "chip": "chips", "acts": "acts"}


class Link(NamedTuple):
    """A link; only its text if the address is empty, because a role may not follow it."""

    text: Any
    href: str
    strong: bool = False


class Menu(NamedTuple):
    """The acts on a row, behind one button; ``of`` is the row's name. Empty without acts."""

    of: str
    links: Sequence[Link]


class Chip(NamedTuple):
    """A state as a word and a shape. Kinds: well, under, running, over, watch, refused, stopped."""

    kind: str
    word: str


# Kinds of states by their values in the database; any other is "over".
STATES = {
    **dict.fromkeys(("active", "done", "settled", "live", "succeeded"), "well"),
    **dict.fromkeys(("grace", "waiting", "failing"), "under"),
    **dict.fromkeys(("open", "doing"), "running"),
    **dict.fromkeys(("client_gone", "lapsed"), "watch"),
    **dict.fromkeys(
        (
            "suspended",
            "stopped",
            "failed",
            "provider_failed",
            "answer_unread",
            "timeout",
            "crashed",
        ),
        "stopped",
    ),
}


def state_chip(state: str) -> Chip:
    return Chip(STATES.get(state, "over"), state.replace("_", " ").capitalize())


@dataclass(frozen=True, slots=True)
class Column:
    label: str
    kind: Literal["text", "number", "time", "chip", "acts"] = "text"

    @property
    def css(self) -> str:
        return CSS[self.kind]


@dataclass(frozen=True, slots=True)
class Row:
    """A row's cells: text, numbers, instants, links, chips, menus or lists; ``href`` is the first one's link."""

    cells: Sequence[Any]
    href: str = ""
    # A class of the row: ``total``.
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    columns: Sequence[Column]
    rows: Sequence[Row]
    # The sentence for an empty table.
    empty: str = ""
    more: Link | None = None
    # True for one of few words, which stays a table on a phone.
    is_plain: bool = False
    # The number of rows that are shown and found, beside the title.
    number: str = ""
