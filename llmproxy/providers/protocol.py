"""The interface of a provider: how to write a request, and how to read its answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from typing import Any, NamedTuple, Protocol

from django.conf import settings

from config.api import problems
from config.api.problems import Problem
from llmproxy.chat import Chat
from llmproxy.sse import Event

# A comment that keeps a silent stream alive; every client skips it.
KEEP_ALIVE = b": keep-alive\n\n"


class ProviderRejected(problems.ProviderRejected):
    """The provider refused the request itself; ``detail`` is the provider's message."""

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


def json_request(
    path: str, credential: dict[str, str], body: dict[str, Any], *, streamed: bool
) -> ProviderRequest:
    """A request with a body of JSON; ``credential`` are the headers that authenticate it."""
    headers = {
        **credential,
        "Content-Type": "application/json",
        "Accept": "text/event-stream" if streamed else "application/json",
        "User-Agent": f"shell-backend/{settings.VERSION}",
    }
    encoded = dumps(body, ensure_ascii=True, separators=(",", ":")).encode()
    return ProviderRequest(f"{settings.LLM_BASE_URL}{path}", headers, encoded)


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
    """The meaning of one provider event for the caller.

    ``forward`` holds the bytes for the caller, ``size`` the bytes of text in it that count as output. ``finished``: the
    answer has its finish reason. ``ended``: the stream is over. ``failed``: the provider reported an error instead.
    ``prompt`` is the prompt's usage where it is known before the whole. A chunk without choices, such as one with the
    usage, is not in ``forward``.
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
        """The event with the usage alone, for callers that want it."""
        ...


class Provider(Protocol):
    """One provider's dialect. Settings give its host and credential; no part of a call can choose them."""

    name: str

    def check(self, chat: Chat) -> None:
        """Raises ``InvalidRequest`` for a request that this provider cannot take, before anything is reserved."""
        ...

    def image_tokens(self, image: Mapping[str, Any], *, model: str) -> int:
        """The tokens of an image of a call for a model, unless the model's row gives a number."""
        ...

    def prompt_overhead(self, chat: Chat) -> int:
        """The tokens, before a route's factor, that this provider adds to a caller's prompt."""
        ...

    def outgoing(self, chat: Chat, *, model: str, output_limit: int) -> ProviderRequest: ...

    def answer(self, body: bytes) -> tuple[dict[str, Any], TokenUsage | None, int]:
        """A one-shot answer in OpenAI's shape, the tokens reported, and the bytes of its text."""
        ...

    def translator(self, chat: Chat, *, called: str | None = None) -> Translator:
        """``called`` is the callers' name of the model, None where it is the provider's own."""
        ...

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Problem: ...
