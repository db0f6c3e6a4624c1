"""Members of calls that cost money outside the tokens of a call, or by another price: refused on every surface.

A surface whose schema has such a member lists the values there. Elsewhere it is refused by its
name, also where an operator has opened the members of a provider: there at any depth, and with what is known to repeat,
fetch or run. ``schemas/refused_members.json`` has the names with their reasons, and the values that change no price,
beside null and false.
"""

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from json import loads
from pathlib import Path
from typing import Any

from config.platform.problems.problem import Fault, pointer
from llmproxy.requests import thinking_budgets
from llmproxy.requests.forms import is_form

_DATA = loads(Path(__file__).with_name("schemas").joinpath("refused_members.json").read_text())
_FREE: dict[str, list[Any]] = _DATA["free_values"]


def _by_name(group: str) -> dict[str, str]:
    return {name: why for why, names in _DATA[group].items() for name in names}


REASONS = _by_name("reasons")
_SECOND_LIMITS = _by_name("second_limits")
# A longer name is none that a server reads.
LONGEST = 100
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OPENED = [(re.compile("|".join(names)), why) for why, names in _DATA["opened"].items()]
Place = tuple[str | int, ...]
# Members that hold a caller's own names.
_SCHEMAS = frozenset({"properties", "schema", "json_schema", "$defs", "definitions"})


def refused_members(data: dict[str, Any], *, known: Collection[str]) -> Iterator[Fault]:
    """Yields the faults of a body's members, but those of its surface."""
    # Of a call without an output limit none is reserved.
    limited = not _SECOND_LIMITS.keys().isdisjoint(known)
    reasons = REASONS | _SECOND_LIMITS if limited else REASONS
    for name, value in data.items():
        if name in known or value is None or value is False or value in _FREE.get(name, ()):
            continue
        if why := reasons.get(name):
            yield Fault(pointer((name,)), "invalid", why)


def why_refused(name: str) -> str | None:
    """Returns the reason for refusing a member that an operator has named; None where it passes."""
    # Servers read one name in several writings.
    words = _CAPITAL.sub("_", name).replace("-", "_").lower() if len(name) <= LONGEST else ""
    return _why(words)


def refused_within(place: Place, value: Any) -> Iterator[Fault]:
    """Yields the faults of a member that is in no schema and of all that it holds, but for forms of answers."""
    left: list[tuple[Place, Any]] = [(place, value)]
    while left:
        at, value = left.pop()
        name = at[-1]
        if isinstance(name, str):
            if is_form(name) or name in _SCHEMAS:
                continue
            is_free = value is None or value is False or value in _FREE.get(name, ())
            if not (is_free or thinking_budgets.is_place(at)) and (why := why_refused(name)):
                yield Fault(pointer(at), "invalid", why)
                continue
        if isinstance(value, dict):
            left += [((*at, each), within) for each, within in value.items()]
        elif isinstance(value, list):
            left += [((*at, index), each) for index, each in enumerate(value)]


@lru_cache(maxsize=4096)
def _why(words: str) -> str | None:
    if why := REASONS.get(words) or _SECOND_LIMITS.get(words):
        return why
    return next((why for names, why in _OPENED if names.fullmatch(words)), None)
