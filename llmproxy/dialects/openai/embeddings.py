"""OpenAI's embeddings, and any server that has them (https://platform.openai.com/docs/api-reference/embeddings)."""

import re
import struct
from base64 import b64decode, b64encode
from secrets import token_hex
from typing import Any

import orjson

from llmproxy.dialects.failures import FailedAnswer, raise_failure
from llmproxy.dialects.passing import AsItCame, drop_costs, without_costs
from llmproxy.dialects.protocol import (
    MALFORMED,
    Codec,
    ProviderRequest,
    Target,
    TokenUsage,
    UnreadableAnswer,
    WholeAnswer,
)
from llmproxy.dialects.reading import parse_json, whole
from llmproxy.dialects.usage import reported_input
from llmproxy.requests.embeddings import EmbeddingsRequest

# Numbers in a list, or bytes in base64, as the value of an embedding.
_VECTOR = re.compile(rb'("embedding"\s*:\s*)(\[[-+0-9.eE,\s]{32,}\]|"[A-Za-z0-9+/=]{32,}")')
# The beginning of a placeholder for a vector; no provider knows it.
_PLACE = f"vector {token_hex(16)} ".encode()
# The bytes of a number in base64: a float of 32 bits, little-endian.
_NUMBER = 4
# The members of a request that ask for other numbers than those, which have no second form.
_OTHER_NUMBERS = frozenset({"output_dtype", "embedding_type", "embedding_types", "encoding_type"})


class Embeddings(Codec):
    """Embeddings: they come in one piece, and only their input counts."""

    is_streamed = False

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
            if request is not None and len(answer.members["data"]) != request.count:
                # Nobody can tell whose vectors these are, and callers pair them with their inputs unseen.
                raise ValueError
        except (*MALFORMED, struct.error, OverflowError):
            if answer.reported is None:
                raise UnreadableAnswer from None
            raise FailedAnswer(UnreadableAnswer(), answer.reported) from None
        return answer

    def _read(self, body: bytes, target: Target) -> WholeAnswer:
        """The vectors, which are nearly all of an answer, pass as bytes."""
        outline, vectors = _outlined(body)
        answer, _ = parse_json(outline)
        if vectors and not _put_back(answer, vectors):
            answer, _ = parse_json(body)
        raise_failure(answer, answer.get("data") or None, key=target.key, reported=_reported)
        usage = answer.pop("usage", None) or {}
        known = _reported(usage)
        drop_costs(answer)
        answer["usage"] = whole(without_costs(usage))
        if known is not None:
            answer["usage"] |= _usage_of(known)
        return WholeAnswer(answer, known, 0)

    def _write_usage(self, answer: dict[str, Any], charged: TokenUsage) -> None:
        answer["usage"] = _usage_of(charged)


def _outlined(body: bytes) -> tuple[bytes, list[bytes]]:
    """An answer with a place in place of each vector, and these. Raises ``ValueError`` for one that is no JSON."""
    vectors: list[bytes] = []

    def place(found: re.Match[bytes]) -> bytes:
        orjson.loads(found[2])
        vectors.append(found[2])
        return b'%b"%b%d"' % (found[1], _PLACE, len(vectors) - 1)

    return _VECTOR.sub(place, body), vectors


def _put_back(answer: Any, vectors: list[bytes]) -> bool:
    """Puts each vector into its place; False where one stands elsewhere."""
    data = answer.get("data")
    found = 0
    for item in data if isinstance(data, list) else ():
        place = item.get("embedding") if isinstance(item, dict) else None
        if isinstance(place, str) and place.startswith(_PLACE.decode()):
            item["embedding"] = AsItCame(vectors[int(place.removeprefix(_PLACE.decode()))])
            found += 1
    return found == len(vectors)


def in_the_form_asked(data: list[Any], asked: dict[str, Any]) -> list[Any]:
    """The embeddings of an answer in the order of their inputs, numbered, and each as the request asked for it.

    OpenAI's SDKs ask for base64 and read whatever comes as such, so numbers become garbage there without an error.
    Raises an error of parsing for an embedding that has no such form.
    """
    ordered = _in_order(data)
    if _OTHER_NUMBERS.isdisjoint(asked):
        wants_base64 = asked.get("encoding_format") == "base64"
        for each in ordered:
            each["embedding"] = _converted(each["embedding"], to_base64=wants_base64)
    return ordered


def _converted(given: Any, *, to_base64: bool) -> Any:
    """An embedding in the other form, unless it is as asked, or in neither."""
    if isinstance(given, AsItCame):
        if to_base64 == (given.json[:1] == b'"'):
            return given
        given = orjson.loads(given.json)
    if to_base64 and isinstance(given, list):
        return b64encode(struct.pack(f"<{len(given)}f", *given)).decode()
    return _numbers(given) if not to_base64 and isinstance(given, str) else given


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
    return reported_input(usage or {})
