"""OpenAI's embeddings, and any server that has them (https://platform.openai.com/docs/api-reference/embeddings)."""

import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from llmproxy.dialects.failures import FailedAnswer, raise_failure
from llmproxy.dialects.passing import drop_costs, without_costs
from llmproxy.dialects.protocol import (
    MALFORMED,
    Codec,
    ProviderError,
    ProviderRequest,
    Target,
    TokenUsage,
    WholeAnswer,
)
from llmproxy.dialects.reading import count_of, parse_json, whole
from llmproxy.requests.embeddings import EmbeddingsRequest

# The bytes of a number in base64: a float of 32 bits, little-endian.
_NUMBER = 4
# The members of a request that ask for other numbers than those, which have no second form.
_OTHER_NUMBERS = frozenset({"output_dtype", "embedding_type", "embedding_types", "encoding_type"})


class Embeddings(Codec):
    """Embeddings: they come in one piece, and only their input counts."""

    def prompt_overhead(self, request: EmbeddingsRequest) -> int:
        return request.token_count

    def outgoing(
        self, request: EmbeddingsRequest, *, target: Target, output_limit: int
    ) -> ProviderRequest:
        return target.post("/embeddings", {**request.members, "model": target.model})

    def answer(
        self, body: bytes, *, target: Target, request: EmbeddingsRequest | None = None
    ) -> WholeAnswer:
        answer = super().answer(body, target=target)
        asked = {} if request is None else request.members
        try:
            answer.members["data"] = in_the_form_asked(answer.members["data"], asked)
        except (*MALFORMED, struct.error, OverflowError):
            if answer.reported is None:
                raise ProviderError from None
            raise FailedAnswer(ProviderError(), answer.reported) from None
        return answer

    def _read(self, body: bytes, key: Callable[[], str]) -> WholeAnswer:
        answer, _ = parse_json(body)
        raise_failure(answer, answer.get("data") or None, key=key, reported=_reported)
        usage = answer.pop("usage", None) or {}
        known = _reported(usage)
        drop_costs(answer)
        answer["usage"] = whole(without_costs(usage))
        if known is not None:
            answer["usage"] |= _usage_of(known)
        return WholeAnswer(answer, known, 0)

    def _write_usage(self, answer: dict[str, Any], charged: TokenUsage) -> None:
        answer["usage"] = _usage_of(charged)


def in_the_form_asked(data: list[Any], asked: dict[str, Any]) -> list[Any]:
    """The embeddings of an answer in the order of their inputs, numbered, and each as the request asked for it.

    OpenAI's SDKs ask for base64 and read whatever comes as such, so numbers become garbage there without an error.
    Raises an error of parsing for an embedding that has no such form.
    """
    ordered = _in_order(data)
    if _OTHER_NUMBERS.isdisjoint(asked):
        wants_base64 = asked.get("encoding_format") == "base64"
        for each in ordered:
            given = each["embedding"]
            if wants_base64 and isinstance(given, list):
                packed = struct.pack(f"<{len(given)}f", *given)
                each["embedding"] = b64encode(packed).decode()
            elif not wants_base64 and isinstance(given, str):
                each["embedding"] = _numbers(given)
    return ordered


def _in_order(data: list[Any]) -> list[Any]:
    """The embeddings by their numbers; where these are not those of the inputs, they are in order already."""
    numbers = [each.get("index") for each in data]
    if numbers == [*range(len(data))]:
        return data
    if {type(each) for each in numbers} == {int} and sorted(numbers) == [*range(len(data))]:
        return sorted(data, key=lambda each: int(each["index"]))
    for number, each in enumerate(data):
        each["index"] = number
    return data


def _numbers(written: str) -> list[float]:
    packed = b64decode(written, validate=True)
    return [*struct.unpack(f"<{len(packed) // _NUMBER}f", packed)]


def _usage_of(known: TokenUsage) -> dict[str, int]:
    return {"prompt_tokens": known.input, "total_tokens": known.input}


def _reported(usage: Any) -> TokenUsage | None:
    counts = [count_of((usage or {}).get(each)) for each in ("prompt_tokens", "total_tokens")]
    known = next((each for each in counts if each is not None), None)
    return None if known is None else TokenUsage(known, 0)
