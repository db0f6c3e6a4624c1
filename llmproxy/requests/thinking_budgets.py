"""Budgets for thinking in a call, which some servers do not hold to its output limit: none may be above it."""

from collections.abc import Iterator
from contextlib import suppress
from math import ceil
from typing import Any, NamedTuple

from config.platform.problems.problem import Fault, InvalidRequest, pointer

Members = dict[str, Any]

# The members of a budget: Anthropic's, OpenRouter's, Alibaba's, vLLM's, a template's and Google's.
_PLACES = (
    ("thinking", "budget_tokens"),
    ("reasoning", "max_tokens"),
    ("thinking_budget",),
    ("thinking_token_budget",),
    ("chat_template_kwargs", "thinking_budget"),
    ("extra_body", "google", "thinking_config", "thinking_budget"),
)
# The least that Anthropic's API takes, and more than any server does.
LEAST, MOST = 1_024, 10**12


class Budget(NamedTuple):
    """Tokens, and the place of their member."""

    place: tuple[str, ...]
    tokens: int


def is_place(place: tuple[str | int, ...]) -> bool:
    """Returns whether a budget is bounded at this place of a call, or a member that holds one."""
    return any(each[: len(place)] == place for each in _PLACES)


def least_output(members: Members) -> int:
    """The least output limit at which the model may think and answer; 0 without a budget."""
    return max((min(each.tokens, LEAST) + 1 for each in _budgets(members)), default=0)


def check(members: Members, *, wanted: int, limit: int) -> None:
    """Raises ``InvalidRequest`` for a budget above the limit that the call names, or too large for its model's."""
    for each in _budgets(members):
        if each.tokens > wanted:
            detail = f"This is above the call's output limit of {wanted:,} tokens, which includes thinking."
        elif limit < least_output(members):
            detail = (
                f"The model's output limit of {limit:,} tokens is too small for a thinking budget."
            )
        else:
            continue
        raise InvalidRequest(errors=[Fault(pointer(each.place), "above_limit", detail)])


def lowered(members: Members, *, limit: int, wanted: int | None) -> Members:
    """The members with each budget below an output limit that is lower than the caller ``wanted``."""
    if limit != wanted:
        for each in _budgets(members):
            if each.tokens >= limit:
                members = _with(members, each.place, limit - 1)
    return members


def _budgets(members: Members) -> Iterator[Budget]:
    for place in _PLACES:
        value: Any = members
        for name in place:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, str):
            # Some servers read texts as numbers.
            with suppress(ValueError):
                value = float(value)
        # A whole number may come as 2000.0, to a schema as to most servers.
        if isinstance(value, int | float) and value > 0:
            yield Budget(place, ceil(min(value, MOST)))


def _with(members: Members, place: tuple[str, ...], value: int) -> Members:
    name, *rest = place
    return {**members, name: _with(members[name], tuple(rest), value) if rest else value}
