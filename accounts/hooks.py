"""Extensions of accounts by the apps above it, which composition registers as Django starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from django.db.models import Exists


@dataclass(frozen=True, slots=True)
class DeviceLimit:
    """The number of devices that each person of a client may be signed in on.

    ``oldest_leaves``: one more signs out the least recently used one; otherwise it is refused.
    """

    devices: int
    oldest_leaves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Claims about the holder's client, for the shell to display. The server never trusts them.

    ``device_limit`` is no claim: it rides on the same query, None for any number of devices.
    """

    client_id: UUID
    plan: str
    entitlements: Sequence[str]
    device_limit: DeviceLimit | None = None


class Caller(Protocol):
    """A caller, as far as accounts needs it."""

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
        """Returns the caller of a user's session, or None if there is no such session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """Functions of the apps above.

    ``claims_of`` returns None without a licensed client; ``licensed`` is the condition of it, by the client's column.
    ``seats_of`` returns how many people of a client may be enabled, None for any number.
    ``unknown_apps`` returns the slugs that no app has.
    """

    load_caller: LoadCaller
    claims_of: Callable[[UUID], Claims | None]
    licensed: Callable[[str], Exists]
    seats_of: Callable[[UUID], int | None]
    unknown_apps: Callable[[set[str]], set[str]]


_registered: list[Extensions] = []


def register(extensions: Extensions) -> None:
    """Registers the extensions; once, as Django starts."""
    _registered[:] = [extensions]


def extensions() -> Extensions:
    """Returns the registered extensions; a process without them cannot sign anybody in."""
    if not _registered:
        raise RuntimeError(
            "Nothing is registered in accounts.hooks; config.composition.collecting does so."
        )
    return _registered[0]
