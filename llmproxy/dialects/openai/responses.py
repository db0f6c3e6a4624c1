"""OpenAI's Responses API, passed on without state (https://platform.openai.com/docs/api-reference/responses)."""

from typing import Any

from llmproxy.dialects.failures import raise_failure
from llmproxy.dialects.openai.response_events import ResponseTranslator
from llmproxy.dialects.openai.response_usage import NO_TEXT, item_size, reported, with_usage
from llmproxy.dialects.passing import OtherTexts, drop_costs, without_costs
from llmproxy.dialects.protocol import (
    ProviderError,
    ProviderRequest,
    Target,
    TokenUsage,
    Translator,
)
from llmproxy.dialects.reading import MALFORMED, parse_json
from llmproxy.requests.responses import ResponsesRequest


class Responses:
    """Responses of a server that has them itself. Nothing is stored there."""

    def check(self, request: ResponsesRequest) -> None:
        """Every valid call can be sent."""

    def prompt_overhead(self, request: ResponsesRequest) -> int:
        return request.unseen_tokens

    def outgoing(
        self, request: ResponsesRequest, *, target: Target, output_limit: int
    ) -> ProviderRequest:
        own = {"model": target.model, "max_output_tokens": output_limit, "store": False}
        body: dict[str, Any] = {**request.members_within(output_limit), **own}
        if request.stream:
            body["stream"] = True
        return target.post("/responses", body, streamed=request.stream)

    def answer(
        self, body: bytes, *, target: Target
    ) -> tuple[dict[str, Any], TokenUsage | None, int]:
        try:
            answer, _ = parse_json(body)
            raise_failure(answer, key=target.key, reported=reported)
            usage = without_costs(answer.get("usage"))
            drop_costs(answer)
            answer["usage"], known = usage, reported(usage)
            size = sum(map(item_size, answer["output"])) + OtherTexts(NO_TEXT).size(answer)
        except MALFORMED:
            raise ProviderError from None
        return (answer if known is None else with_usage(answer, known)), known, size

    def completed(
        self, answer: dict[str, Any], *, called: str | None, charged: TokenUsage | None
    ) -> dict[str, Any]:
        if called is not None:
            answer["model"] = called
        return answer if charged is None else with_usage(answer, charged)

    def translator(
        self, request: ResponsesRequest, *, target: Target, called: str | None
    ) -> Translator:
        return ResponseTranslator(key=target.key, called=called)
