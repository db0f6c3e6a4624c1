"""Members of calls that cost money outside the tokens of a call, or by another price: refused on every surface.

A surface whose schema knows such a member says there with which values it is taken. Elsewhere it is refused by its
name, also where an operator has opened the members of a provider. ``schemas/refused_members.json`` has the names with
their reasons, and the values that change no price, beside null and false.
"""

from collections.abc import Collection, Iterator
from json import loads
from pathlib import Path
from typing import Any

from config.api.problems import Fault, pointer

_DATA = loads(Path(__file__).with_name("schemas").joinpath("refused_members.json").read_text())
_FREE: dict[str, list[Any]] = _DATA["free_values"]


def _by_name(group: str) -> dict[str, str]:
    return {name: why for why, names in _DATA[group].items() for name in names}


REASONS = _by_name("reasons")
_SECOND_LIMITS = _by_name("second_limits")


def refused_members(data: dict[str, Any], *, known: Collection[str]) -> Iterator[Fault]:
    """Yields the faults of a body's members, but those that its surface knows."""
    # Of a call without an output limit none is reserved.
    limited = not _SECOND_LIMITS.keys().isdisjoint(known)
    reasons = REASONS | _SECOND_LIMITS if limited else REASONS
    for name, value in data.items():
        if name in known or value is None or value is False or value in _FREE.get(name, ()):
            continue
        if why := reasons.get(name):
            yield Fault(pointer((name,)), "invalid", why)
