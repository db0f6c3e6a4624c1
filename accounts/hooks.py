"""What accounts needs of the apps above it: functions that composition registers as Django starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims about the holder's client, for the shell to display; the server decides by its rows."""

    client_id: UUID
    plan: str
    entitlements: Sequence[str]


class Caller(Protocol):
    """The part of a caller that this app needs."""

    @property
    def user_id(self) -> UUID: ...
    @property
    def email(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def is_authenticated(self) -> bool: ...
    @property
    def may_call(self) -> bool: ...


class LoadCaller(Protocol):
    def __call__(self, *, user_id: UUID, session_id: UUID) -> Caller | None:
        """The caller of a user's session, or None if there is no such session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Above:
    """What the apps above provide.

    ``claims_of``: the claims about a user's client, or None without a licensed client.
    ``unknown_apps``: those of some slugs that no app has.
    """

    load_caller: LoadCaller
    claims_of: Callable[[UUID], Claims | None]
    unknown_apps: Callable[[set[str]], set[str]]


_registered: list[Above] = []


def register(provided: Above) -> None:
    """Registers what the apps above provide; once, as Django starts."""
    _registered[:] = [provided]


def above() -> Above:
    """What is registered; a process without it cannot sign anybody in."""
    if not _registered:
        raise RuntimeError(
            "Nothing is registered in accounts.hooks; config.composition.collecting does so."
        )
    return _registered[0]
