"""Acts of the audit log and rights of the console, declared by each app beside the code that performs them.

An app lists them in its module ``acts`` and declares them when it is loaded. The console's history, the roles'
rights (``config.composition.roles``), ``docs/audit.csv`` and ``docs/roles.csv`` are generated from them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from config.platform.declarations import Declarations

# An owner has every right, and an auditor can view every page.
RoleName = Literal["support", "licensing", "release", "auditor"]


class Proof(StrEnum):
    """The acts that require the second factor again once its latest proof is older than ten minutes."""

    NONE = ""
    # The action grants rights, cannot be undone, decides which code shells run, or sends prompts elsewhere.
    GRAVE = "grave"
    # The action, on an operator's account, locks the operator out or lets them in.
    GRAVE_FOR_OPERATORS = "grave for operators"


@dataclass(frozen=True, slots=True)
class Page:
    """The right to view the rows of a model, such as ``accounts.user``."""

    model: str
    roles: tuple[RoleName, ...] = ()


@dataclass(frozen=True, slots=True)
class Right:
    """The right to perform an action of the console, such as ``accounts.user_disable``, named as its route."""

    name: str
    roles: tuple[RoleName, ...] = ()
    proof: Proof = Proof.NONE


@dataclass(frozen=True, slots=True)
class Act:
    """An act that the audit log records, with its sentence for console and docs, and the rights to perform it there.

    Acts of the API, the worker and commands have no rights. ``{}`` in the sentence stands for the event's target.
    ``details`` describes the change, in place of a list of its members: the first sentence whose ``{member}``s the
    event has, after the change or else before it. ``names`` has the words for targets whose names are none, such as
    commands.
    """

    action: str
    sentence: str
    meaning: str
    rights: tuple[Right, ...] = ()
    details: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict, compare=False)

    def target(self, name: str) -> str:
        """Returns the words for a target in the sentence."""
        return self.names.get(name, name)


PAGES: Final = Declarations[Page](lambda page: page.model)
ACTS: Final = Declarations[Act](lambda act: act.action)
RIGHTS: Final = Declarations[Right](lambda right: right.name)


def declare(acts: Iterable[Act], pages: Iterable[Page] = ()) -> None:
    """Adds an app's acts with their rights, and its pages; refuses a name that is already declared."""
    acts = tuple(acts)
    ACTS.add(*acts)
    RIGHTS.add(*(right for act in acts for right in act.rights))
    PAGES.add(*pages)
