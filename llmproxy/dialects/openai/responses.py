"""OpenAI's Responses API, passed on without state (https://platform.openai.com/docs/api-reference/responses)."""

from typing import Any

from llmproxy.dialects.failures import raise_failure
from llmproxy.dialects.gathering import response_of
from llmproxy.dialects.openai.delivered import write_empties
from llmproxy.dialects.openai.outgoing import as_object, wants_objects
from llmproxy.dialects.openai.response_ends import failure_in, say_what_is_missing
from llmproxy.dialects.openai.response_events import ResponseTranslator, made_id
from llmproxy.dialects.openai.response_usage import NO_TEXT, item_size, with_usage
from llmproxy.dialects.openai.streamed import response_as_events
from llmproxy.dialects.passing import OtherTexts, drop_costs, without_costs
from llmproxy.dialects.protocol import (
    Codec,
    ProviderRequest,
    Target,
    TokenUsage,
    WholeAnswer,
)
from llmproxy.dialects.reading import parse_json
from llmproxy.dialects.usage import reported
from llmproxy.requests.responses import ResponsesRequest


class Responses(Codec):
    """Responses of a server that has them itself. Nothing is stored there."""

    def prompt_overhead(self, request: ResponsesRequest) -> int:
        return request.unseen_tokens

    def outgoing(
        self, request: ResponsesRequest, *, target: Target, output_limit: int
    ) -> ProviderRequest:
        own = {"model": target.model, "max_output_tokens": output_limit, "store": False}
        body: dict[str, Any] = {**request.members_within(output_limit), **own}
        if "tools" in body and wants_objects(target.base_url):
            body["tools"] = [as_object(each) for each in body["tools"]]
        if request.stream:
            body["stream"] = True
        return target.post("/responses", body, streamed=request.stream)

    def _read(self, body: bytes, target: Target) -> WholeAnswer:
        answer, _ = parse_json(body)
        made, error = answer.get("output"), failure_in(answer)
        raise_failure(answer, made, key=target.key, error=error, size_of=_size_of)
        say_what_is_missing(answer)
        for item in answer["output"]:
            write_empties(item)
        if not answer.get("id"):
            answer["id"] = made_id()
        usage = without_costs(answer.get("usage"))
        drop_costs(answer)
        answer["usage"], known = usage, reported(usage)
        size = sum(map(item_size, answer["output"])) + OtherTexts(NO_TEXT).size(answer)
        if known is not None:
            with_usage(answer, known)
        return WholeAnswer(answer, known, size)

    def _write_usage(self, answer: dict[str, Any], charged: TokenUsage) -> None:
        with_usage(answer, charged)

    def as_stream(self, body: bytes) -> bytes:
        return response_as_events(parse_json(body)[0])

    def gathered(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        return response_of(events)

    def translator(
        self, request: ResponsesRequest, *, target: Target, called: str | None
    ) -> ResponseTranslator:
        return ResponseTranslator(key=target.key, called=called)


def _size_of(items: Any) -> int:
    return sum(map(item_size, items))
