"""The members that models are known to refuse, by the provider's name for a model, and their removal from a call.

A member at its default says nothing, and stays. Where a provider names a member of which the table does not know, it is
asked once more without it (``refusals.MemberRefused``).
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

Members = dict[str, Any]

_DEFAULTS: Members = {
    "temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "logprobs": False, "logit_bias": {},
}  # fmt: skip
_SAMPLING = ("temperature", "top_p", "top_k")
_OF_REASONING = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "logit_bias",
)
# The members that a call may do without.
DROPPABLE = frozenset({*_SAMPLING, *_OF_REASONING})
EFFORT = "reasoning_effort"


class Refused(NamedTuple):
    """A member that a provider has refused: with ``beside`` only where that one is there too.

    ``is_lasting``: it will be refused again, whatever else a call contains.
    """

    member: str
    beside: str | None = None
    is_lasting: bool = True

    def is_in(self, members: Members) -> bool:
        return self.member in members and (self.beside is None or self.beside in members)


class _Rule(NamedTuple):
    """The models by their name, whatever path or vendor stands before it, and the members that they refuse.

    ``together``: they take one of these members alone, the first.
    """

    models: re.Pattern[str]
    refuses: tuple[str, ...] = ()
    together: tuple[str, ...] = ()


_RULES = (
    # Claude up to 4.5 takes a budget in place of an effort; this list is complete.
    _Rule(
        re.compile(
            r"claude-(?:instant|v?[123]|(?:opus|sonnet|haiku)-4(?:[-.][0-5])?(?:[-@]\d{8})?(?![-.]?\d))"
        ),
        refuses=(EFFORT,),
    ),
    # Claude 4.1 to 4.6 (NeatChat/NeatChat#72, open-webui/pipelines#546).
    _Rule(re.compile(r"claude-[a-z]+-4[-.][1-6](?!\d)"), together=("temperature", "top_p")),
    # Claude from 4.7 on (The-PR-Agent/pr-agent#2456, vogler75/monster-mq#168).
    _Rule(
        re.compile(r"claude-[a-z]+-(?:4[-.](?:[7-9]|\d\d)|[5-9]|[1-9]\d)(?!\d)"), refuses=_SAMPLING
    ),
    # OpenAI's first models that reason; later ones take all of it without an effort.
    _Rule(
        re.compile(r"(?:^|/)(?:o[1-9](?:-|$)|gpt-5(?:-mini|-nano|-pro)?(?:-\d{4}|$))"),
        refuses=_OF_REASONING,
    ),
)  # fmt: skip


def refuses(model: str, member: str) -> bool:
    """Returns whether the model of this name is known to refuse a member."""
    return any(member in rule.refuses for rule in _rules_of(model))


def left_out(members: Members, *, model: str, also: Iterable[Refused] = ()) -> frozenset[str]:
    """The members of a call that are not sent to a model, ``also`` those that it has refused."""
    names = {each.member for each in also if each.is_in(members)}
    for rule in _rules_of(model):
        names |= {each for each in rule.refuses if each in DROPPABLE and _says(members, each)}
        both = [each for each in rule.together if each in members]
        if len(both) > 1:
            # One at its default says nothing beside the other.
            kept = next((each for each in both if _says(members, each)), both[0])
            names |= {each for each in both if each != kept}
    if "logprobs" in names:
        names |= {"top_logprobs"} & members.keys()
    return frozenset(names)


def dropped(members: Members, names: Iterable[str]) -> list[str]:
    """The members left out that had said something."""
    return sorted(each for each in names if _says(members, each))


def _says(members: Members, name: str) -> bool:
    return name in members and members[name] != _DEFAULTS.get(name)


def _rules_of(model: str) -> list[_Rule]:
    return [each for each in _RULES if each.models.search(model.lower())]
