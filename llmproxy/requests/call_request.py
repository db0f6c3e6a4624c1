"""The request for a model, common to all surfaces."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from config.platform.problems.problem import Fault, pointer
from llmproxy.requests import thinking_budgets
from llmproxy.requests.checking import RequestSchema, is_answer
from llmproxy.requests.hidden_addresses import addresses_in


class Surface(StrEnum):
    """The addresses of model calls, each with its own shape of request, answer and events."""

    CHAT = "chat"
    RESPONSES = "responses"
    EMBEDDINGS = "embeddings"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """A valid request. ``members`` are for the provider; ``output_wanted`` is in tokens, None where it is not said.

    ``unknown``: the faults of members that only a provider takes whose members an operator has opened, or those that
    callers give back of an answer. ``labels``: what the caller says that the call is for.
    """

    schema: ClassVar[RequestSchema]
    surface: Surface
    model: str | None
    members: dict[str, Any]
    output_wanted: int | None = None
    stream: bool = False
    unknown: tuple[Fault, ...] = ()
    labels: dict[str, Any] | None = None

    @property
    def prompt(self) -> dict[str, Any]:
        """The prompt as ``messages`` and ``tools`` of a chat completion, which is how all prompts are counted."""
        return self.members

    @property
    def unlisted_members(self) -> list[dict[str, Any]]:
        """The members that are in no list, by the object that they are of."""
        return [each for _, each in self.schema.unlisted(self.members)] if self.unknown else []

    def beyond(self, named: Collection[str] | None) -> Iterator[Fault]:
        """Yields the faults of its unknown members at a provider that gets the ``named`` ones, or with None all."""
        yield from self.schema.beyond(self.members, named=named)

    @property
    def cites(self) -> bool:
        """Returns whether the answer may repeat parts of its documents."""
        return False

    @property
    def thinks(self) -> bool:
        """Returns whether it asks the model to think before it answers."""
        reasoning, thinking = self.members.get("reasoning"), self.members.get("thinking")
        effort = self.members.get("reasoning_effort")
        if isinstance(reasoning, dict):
            asks = ("effort", "max_tokens", "enabled")
            effort = effort or next((reasoning[name] for name in asks if reasoning.get(name)), None)
        kind = thinking.get("type") if isinstance(thinking, dict) else None
        return effort not in (None, "none") or kind not in (None, "disabled")

    def members_within(self, output_limit: int) -> dict[str, Any]:
        """The members for a provider, with budgets for thinking below an output limit that was lowered."""
        return thinking_budgets.lowered(self.members, limit=output_limit, wanted=self.output_wanted)

    def fetched_images(self) -> Iterator[tuple[str, str]]:
        """Yields pointer and address of each image, audio and file that the provider would fetch."""
        yield from ()

    def unlisted_addresses(self) -> Iterator[tuple[str, str]]:
        """Yields pointer and address of what a provider may fetch by a member that is in no list."""
        for place, members in self.schema.unlisted(self.members) if self.unknown else ():
            match place:
                case ("messages" | "input" as turns, int(index), *_):
                    is_said = is_answer(self.members[turns][index])
                case _:
                    is_said = False
            for name, value in members.items():
                if address := next(addresses_in({name: value}, is_said=is_said), None):
                    yield pointer((*place, name)), address
