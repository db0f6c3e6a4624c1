"""The interface of providers: how to write a request, and how to read its answer."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from json import dumps
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings

from config.platform.problems import problem as problems
from config.platform.problems.problem import Problem
from llmproxy.dialects.model_rules import Refused
from llmproxy.dialects.sse import Event, EventParser
from llmproxy.prompts.estimates import Measure
from llmproxy.requests.call_request import CallRequest, Surface
from llmproxy.requests.checking import GIVEN_BACK
from usage.costs import Prices

# A comment that keeps a silent stream alive; every client skips it. Some take a blank line after it for an event.
KEEP_ALIVE = b": keep-alive\n"
# Words that servers send in place of JSON to say that they are alive, as data or as the name of an event.
_HEARTBEAT = re.compile("ping|pong|heartbeat|keep-?alive", re.IGNORECASE)
NO_HEADERS: Mapping[str, str] = {}
# Errors of reading an answer that is not as its dialect has it.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class TooDeep(ValueError):
    """An answer nests too deep to be read."""


class Said(NamedTuple):
    """A provider's own report of its failure: a status, if it gave one, and its words without what is secret."""

    status: int | None
    words: str


class ProviderProblem(Problem):
    """A failure of a provider, with what it has said of it for operators."""

    said: Said | None = None


class ProviderRejected(ProviderProblem, problems.ProviderRejected):
    """The provider refused the request itself; ``detail`` is the provider's message."""

    title = "The model refused the request"
    default_detail = "The model does not accept this request as it is."


class ProviderError(ProviderProblem, problems.ProviderError):
    title = "The model failed"
    default_detail = "The model did not answer properly. Please try again."


class UnreadableAnswer(ProviderError):
    """A provider has answered with the status 200, and what it sent cannot be read; ``goes_on``: another may do."""

    def __init__(self, *, goes_on: bool = True) -> None:
        super().__init__()
        self.goes_on = goes_on


class ProviderUnavailable(ProviderProblem, problems.ProviderUnavailable):
    title = "The model is not available"
    default_detail = "The model is not available at the moment. Please try again shortly."


class ProviderTimeout(ProviderProblem, problems.ProviderTimeout):
    title = "The model took too long"
    default_detail = "The model took too long to answer. Please try again."


def unreadable(error: Exception) -> UnreadableAnswer:
    """The failure of an answer that raised one of ``MALFORMED``. One that is too deep would be elsewhere too."""
    return UnreadableAnswer(goes_on=not isinstance(error, TooDeep))


class ProviderRequest(NamedTuple):
    """One HTTP request to a provider."""

    url: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as a provider reports them; ``input`` includes those read from a cache (``cached_input``) or written to
    one, and ``output`` the reasoning ones."""

    input: int
    output: int
    cached_input: int = 0
    reasoning: int = 0
    cache_write: int = 0


class PromptUsage(NamedTuple):
    """Tokens of a prompt; ``input`` includes those read from a cache or written to one."""

    input: int
    cached_input: int = 0
    cache_write: int = 0


@dataclass(slots=True)
class Piece:
    """The meaning of one provider event for the caller.

    ``forward`` holds the bytes for the caller, ``size`` the bytes of text in it that count as output. ``finished``: the
    answer has its finish reason, or its last event where that says as much. ``ended``: the stream is over, which fails
    one that has not finished. ``failed``: the provider reported an error instead.
    ``is_within``: an answer that was begun has failed, so that it costs what it reports, if need be afterwards.
    ``prompt`` is the prompt's usage where it is known before the whole. A chunk without choices, such as one with the
    usage, is not in ``forward``.
    """

    forward: bytes = b""
    size: int = 0
    finished: bool = False
    ended: bool = False
    failed: Problem | None = None
    is_within: bool = False
    reported: TokenUsage | None = None
    prompt: PromptUsage | None = None
    is_text: bool = False


class WholeAnswer(NamedTuple):
    """An answer in the caller's shape, the tokens reported, and the bytes of its text."""

    members: dict[str, Any]
    reported: TokenUsage | None
    size: int


class Translator(ABC):
    """Reads the events of one stream, in order. ``called`` is the callers' name of the model, if it is another."""

    def __init__(
        self, *, key: Callable[[], str], called: str | None = None, provider: str = ""
    ) -> None:
        self._key = key
        self._called = called
        self._provider = provider

    def piece(self, event: Event) -> Piece:
        if event.data is None:
            # A comment shows that the provider is alive, which becomes our own keep-alive.
            return Piece(forward=KEEP_ALIVE if event.raw.lstrip().startswith(b":") else b"")
        try:
            return self._read(event, event.data)
        except MALFORMED as error:
            words = (event.event or "", event.data.decode("utf-8", "replace").strip())
            is_heartbeat = any(map(_HEARTBEAT.fullmatch, words))
            return Piece(failed=None if is_heartbeat else unreadable(error))

    @abstractmethod
    def _read(self, event: Event, data: bytes) -> Piece: ...

    @abstractmethod
    def ending(self, charged: TokenUsage) -> bytes:
        """The last bytes of a settled stream, after those that its pieces forward."""

    @abstractmethod
    def failure(self, problem: Problem) -> bytes:
        """The bytes that end a stream in place of its ending."""


class Codec(ABC):
    """One surface in one dialect: how a request is written for a provider, and how its answer is read."""

    # The surface has streams.
    is_streamed = True
    # A stream may begin like an answer in one piece, as lines of JSON do, so that none is looked for in it.
    streams_objects = False
    # A stream ends with its connection alone. Any other that has no finish reason was cut on the way.
    ends_by_closing = False

    def check(self, request: Any) -> None:  # noqa: B027 - most dialects take every valid request
        """Raises ``InvalidRequest`` for a request that the dialect cannot take, before anything is reserved."""

    def prompt_overhead(self, request: Any) -> int:
        """The tokens, before a route's factor, that providers of the dialect add to a caller's prompt."""
        return 0

    @abstractmethod
    def outgoing(self, request: Any, *, target: "Target", output_limit: int) -> ProviderRequest: ...

    def answer(self, body: bytes, *, target: "Target", request: Any = None) -> WholeAnswer:
        """Reads a whole answer, to a request where what it asks for matters. Raises a problem for a failure, or
        ``FailedAnswer`` where it reports tokens."""
        try:
            return self._read(body, target)
        except MALFORMED as error:
            raise unreadable(error) from None

    @abstractmethod
    def _read(self, body: bytes, target: "Target") -> WholeAnswer: ...

    def completed(
        self, answer: dict[str, Any], *, called: str | None, charged: TokenUsage | None
    ) -> dict[str, Any]:
        """The answer for the caller. ``called`` is the callers' name of the model, None where it is the provider's
        own; ``charged`` is the usage charged, None where it is what the provider reported."""
        if called is not None:
            answer["model"] = called
        if charged is not None:
            self._write_usage(answer, charged)
        return answer

    @abstractmethod
    def _write_usage(self, answer: dict[str, Any], charged: TokenUsage) -> None: ...

    def parser(self) -> EventParser:
        """Cuts a stream into the events that its translator reads."""
        return EventParser()

    def translator(self, request: Any, *, target: "Target", called: str | None) -> Translator:
        raise NotImplementedError("These answers are not streamed.")

    def count_request(self, request: Any, *, target: "Target") -> ProviderRequest | None:
        """The request by which a provider counts a prompt; None where the dialect has none."""
        return None

    def count_in(self, answer: bytes) -> int | None:
        """The tokens in the answer to ``count_request``; None where it holds no count."""
        raise NotImplementedError("These prompts are not counted.")

    def reporting(self, request: Any) -> Any:
        """The request as one whose stream includes the usage."""
        return request

    def as_stream(self, body: bytes) -> bytes:
        """Returns a whole answer, already checked by ``answer``, as the events of a stream."""
        raise UnreadableAnswer

    def gathered(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        """The whole answer for a caller who would get these events by a translator and its ending."""
        raise UnreadableAnswer


class Dialect(NamedTuple):
    """An API that providers speak: all that there is to say of it beside its codecs.

    ``name`` is that of settings and rows. ``address`` is the vendor's own, as its SDK takes it. ``hosts`` are the
    vendor's own, which fetch images and files from the public internet alone. ``credential`` makes the headers that
    authenticate a request with a key. ``image_tokens`` are the tokens of an image of a call for a model, unless the
    model's row gives a number.
    """

    name: str
    address: str
    credential: Callable[[str], dict[str, str]]
    image_tokens: Callable[[Mapping[str, Any], str], int]
    codecs: Mapping[Surface, Codec]
    hosts: tuple[str, ...] = ()

    def is_at_vendor(self, address: str) -> bool:
        """Returns whether an address is one of the vendor's own."""
        host = (urlsplit(address).hostname or "").removesuffix(".")
        return any(host == each or host.endswith(f".{each}") for each in self.hosts)


class RouteKey(NamedTuple):
    """A provider, and its name for a model."""

    provider: str
    model: str


class Target(NamedTuple):
    """The provider of a call, and its name for the model. No part of a call can choose the host or the key.

    ``base_url`` is as the SDK of the dialect takes it. ``members``: those that pass beside the dialect's own, all with
    ``passes_all``. ``fetches``: images and files by URL pass. ``limit_name``: what OpenAI's chat completions call the
    output limit there. ``calls_per_minute`` and ``read_timeout``, in seconds, are the provider's own limits.
    ``thinks``: the model is known to think before it answers. ``drops``: what it has refused in this call.
    """

    provider: str
    dialect: Dialect
    base_url: str
    key: Callable[[], str]
    model: str
    measure: Measure
    prices: Prices
    passes_all: bool = False
    members: frozenset[str] = frozenset()
    fetches: bool = False
    limit_name: str = "max_tokens"
    route_id: int | None = None
    calls_per_minute: int | None = None
    read_timeout: int | None = None
    thinks: bool = False
    drops: frozenset[Refused] = frozenset()

    @property
    def route(self) -> RouteKey:
        return RouteKey(self.provider, self.model)

    def codec(self, surface: Surface) -> Codec:
        return self.dialect.codecs[surface]

    def check(self, request: CallRequest) -> None:
        """Raises ``InvalidRequest`` for a request that this provider cannot take, before anything is reserved."""
        unknown = [each for each in request.unknown if each.code != GIVEN_BACK]
        if unknown:
            if not (self.passes_all or self.members):
                raise problems.InvalidRequest(errors=unknown)
            beyond = request.beyond(None if self.passes_all else self.members)
            if faults := list(islice(beyond, problems.MAX_FAULTS)):
                raise problems.InvalidRequest(errors=faults)
        self.codec(request.surface).check(request)

    def post(
        self,
        path: str,
        body: dict[str, Any],
        *,
        streamed: bool = False,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> ProviderRequest:
        """A request with a body of JSON, authenticated with the provider's key."""
        sent = {
            **self.dialect.credential(self.key()),
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if streamed else "application/json",
            "User-Agent": f"shell-backend/{settings.VERSION}",
            **headers,
        }
        encoded = dumps(body, ensure_ascii=True, separators=(",", ":")).encode()
        return ProviderRequest(f"{self.base_url}{path}", sent, encoded)
