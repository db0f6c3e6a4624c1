"""OpenAI's embeddings, and any server that has them (https://platform.openai.com/docs/api-reference/embeddings)."""

import re
from secrets import token_hex
from typing import Any

from orjson import Fragment

from llmproxy.dialects.failures import raise_failure
from llmproxy.dialects.passing import drop_costs, without_costs
from llmproxy.dialects.protocol import (
    Codec,
    ProviderRequest,
    Target,
    TokenUsage,
    WholeAnswer,
)
from llmproxy.dialects.reading import parse_json, whole
from llmproxy.dialects.usage import reported_input
from llmproxy.requests.embeddings import EmbeddingsRequest

# Numbers in a list, or bytes in base64, as the value of an embedding.
_VECTOR = re.compile(rb'("embedding"\s*:\s*)(\[[-+0-9.eE,\s]{32,}\]|"[A-Za-z0-9+/=]{32,}")')
# How a place begins that a vector has left; no provider knows it.
_PLACE = f"vector {token_hex(16)} ".encode()


class Embeddings(Codec):
    """Embeddings: they come in one piece, and only their input counts."""

    def prompt_overhead(self, request: EmbeddingsRequest) -> int:
        return request.token_count

    def outgoing(
        self, request: EmbeddingsRequest, *, target: Target, output_limit: int
    ) -> ProviderRequest:
        return target.post("/embeddings", {**request.members, "model": target.model})

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
    """An answer with a place in place of each vector, and these."""
    vectors: list[bytes] = []

    def place(found: re.Match[bytes]) -> bytes:
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
            item["embedding"] = Fragment(vectors[int(place.removeprefix(_PLACE.decode()))])
            found += 1
    return found == len(vectors)


def _usage_of(known: TokenUsage) -> dict[str, int]:
    return {"prompt_tokens": known.input, "total_tokens": known.input}


def _reported(usage: Any) -> TokenUsage | None:
    return reported_input(usage or {})
