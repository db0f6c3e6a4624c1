"""OpenAI's embeddings, and any server that has them (https://platform.openai.com/docs/api-reference/embeddings)."""

from typing import Any

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


class Embeddings(Codec):
    """Embeddings: they come in one piece, and only their input counts."""

    def prompt_overhead(self, request: EmbeddingsRequest) -> int:
        return request.token_count

    def outgoing(
        self, request: EmbeddingsRequest, *, target: Target, output_limit: int
    ) -> ProviderRequest:
        return target.post("/embeddings", {**request.members, "model": target.model})

    def _read(self, body: bytes, target: Target) -> WholeAnswer:
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


def _usage_of(known: TokenUsage) -> dict[str, int]:
    return {"prompt_tokens": known.input, "total_tokens": known.input}


def _reported(usage: Any) -> TokenUsage | None:
    return reported_input(usage or {})
