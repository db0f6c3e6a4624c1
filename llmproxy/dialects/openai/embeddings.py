"""OpenAI's embeddings, and any server that has them (https://platform.openai.com/docs/api-reference/embeddings)."""

from typing import Any, Never

from llmproxy.dialects.failures import raise_failure
from llmproxy.dialects.passing import drop_costs, without_costs
from llmproxy.dialects.protocol import ProviderError, ProviderRequest, Target, TokenUsage
from llmproxy.dialects.reading import MALFORMED, count_of, parse_json, whole
from llmproxy.requests.embeddings import EmbeddingsRequest


class Embeddings:
    """Embeddings: they come in one piece, and only their input counts."""

    def check(self, request: EmbeddingsRequest) -> None:
        """Every valid call can be sent."""

    def prompt_overhead(self, request: EmbeddingsRequest) -> int:
        return request.token_count

    def outgoing(
        self, request: EmbeddingsRequest, *, target: Target, output_limit: int
    ) -> ProviderRequest:
        return target.post("/embeddings", {**request.members, "model": target.model})

    def answer(
        self, body: bytes, *, target: Target
    ) -> tuple[dict[str, Any], TokenUsage | None, int]:
        try:
            answer, _ = parse_json(body)
            raise_failure(answer, key=target.key, reported=_reported)
            made, usage = answer["data"], answer.pop("usage", None) or {}
            known = _reported(usage)
            drop_costs(answer)
            answer["usage"] = whole(without_costs(usage))
        except MALFORMED:
            raise ProviderError from None
        if not isinstance(made, list) or not made:
            raise ProviderError
        if known is not None:
            answer["usage"] |= {"prompt_tokens": known.input, "total_tokens": known.input}
        return answer, known, 0

    def completed(
        self, answer: dict[str, Any], *, called: str | None, charged: TokenUsage | None
    ) -> dict[str, Any]:
        if called is not None:
            answer["model"] = called
        if charged is not None:
            answer["usage"] = {"prompt_tokens": charged.input, "total_tokens": charged.input}
        return answer

    def translator(
        self, request: EmbeddingsRequest, *, target: Target, called: str | None
    ) -> Never:
        raise NotImplementedError("Embeddings are not streamed.")


def _reported(usage: Any) -> TokenUsage | None:
    counts = [count_of((usage or {}).get(each)) for each in ("prompt_tokens", "total_tokens")]
    known = next((each for each in counts if each is not None), None)
    return None if known is None else TokenUsage(known, 0)
