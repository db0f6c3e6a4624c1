"""What the proxy asks of a provider: how to say a call, and how to read what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from config.api import problems
from config.api.problems import Problem
from llmproxy.chat import Chat
from llmproxy.sse import Event

# What a stream says when there is nothing to say: a comment, which every client skips.
KEEP_ALIVE = b": keep-alive\n\n"


class ProviderRejected(problems.ProviderRejected):
    """The provider refused the request itself; its words are in ``detail``."""

    title = "The model refused the request"
    default_detail = "The model does not take this request as it is."


class ProviderError(problems.ProviderError):
    title = "The model failed"
    default_detail = "The model did not answer properly. Please try again."


class ProviderUnavailable(problems.ProviderUnavailable):
    title = "The model is not available"
    default_detail = "The model is not available at the moment. Please try again shortly."


class ProviderTimeout(problems.ProviderTimeout):
    title = "The model took too long"
    default_detail = "The model took too long to answer. Please try again."


class ProviderRequest(NamedTuple):
    """One HTTP request to a provider."""

    url: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as a provider reports them; ``input`` includes the cached and ``output`` the reasoning ones."""

    input: int
    output: int
    cached_input: int = 0
    reasoning: int = 0


class PromptUsage(NamedTuple):
    """Tokens of a prompt; ``input`` includes the cached ones."""

    input: int
    cached_input: int = 0


@dataclass(slots=True)
class Piece:
    """What one event of a provider means for the caller.

    ``forward`` is what the caller gets (empty: nothing), ``size`` the bytes of text in it that count as
    output, ``finished`` that the answer has its reason for ending, ``ended`` that the provider says
    nothing more, ``failed`` that it reported an error instead. ``prompt`` is what a provider tells of the
    prompt before it can report the whole. A chunk without choices, such as tells the usage, is not in ``forward``.
    """

    forward: bytes = b""
    size: int = 0
    finished: bool = False
    ended: bool = False
    failed: Problem | None = None
    reported: TokenUsage | None = None
    prompt: PromptUsage | None = None


class Translator(Protocol):
    """Reads the events of one stream, in order."""

    def piece(self, event: Event) -> Piece: ...

    def usage_chunk(self, known: TokenUsage) -> bytes:
        """The event that tells the usage and nothing else, for those who have asked for it."""
        ...


class Provider(Protocol):
    """One provider's dialect. Hosts and credentials are its own; nothing of a call can choose them."""

    name: str
    # The most that one image costs in a prompt, unless the row of its model says otherwise.
    image_tokens: int

    def check(self, chat: Chat) -> None:
        """Raises ``InvalidRequest`` for what this provider cannot be asked, before anything is reserved."""
        ...

    def prompt_overhead(self, chat: Chat) -> int:
        """The most tokens that this provider adds to what a caller said."""
        ...

    def outgoing(self, chat: Chat, *, model: str, output_limit: int) -> ProviderRequest: ...

    def answer(self, body: bytes) -> tuple[dict[str, Any], TokenUsage | None, int]:
        """A one-shot answer in OpenAI's shape, the tokens reported, and the bytes of its text."""
        ...

    def translator(self, chat: Chat, *, called: str | None = None) -> Translator:
        """``called`` is the name that callers know the model by, None where it is the provider's own."""
        ...

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Problem: ...
