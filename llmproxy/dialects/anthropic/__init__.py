"""Anthropic's Messages API (https://docs.anthropic.com/en/api/messages), for callers of chat completions."""

from llmproxy.dialects.anthropic.answer import completion
from llmproxy.dialects.anthropic.events import EventTranslator
from llmproxy.dialects.anthropic.message_events import size_of_blocks
from llmproxy.dialects.anthropic.outgoing import message_request
from llmproxy.dialects.anthropic.overhead import prompt_overhead
from llmproxy.dialects.anthropic.streamed import message_as_events
from llmproxy.dialects.chat_answers import ChatCodec
from llmproxy.dialects.failures import failure_within, raise_failure
from llmproxy.dialects.protocol import ProviderRequest, Target, WholeAnswer
from llmproxy.dialects.reading import parse_json_exactly
from llmproxy.requests.chat import Chat

API_VERSION = "2023-06-01"


class ChatCompletions(ChatCodec):
    """Chat completions. The base URL is that of Anthropic's own SDK, without ``/v1``."""

    def check(self, request: Chat) -> None:
        message_request(request, model="", output_limit=1)

    def prompt_overhead(self, request: Chat) -> int:
        return prompt_overhead(request.members)

    def outgoing(self, request: Chat, *, target: Target, output_limit: int) -> ProviderRequest:
        body = message_request(request, model=target.model, output_limit=output_limit)
        return target.post("/v1/messages", body, streamed=request.stream)

    def _read(self, body: bytes, target: Target) -> WholeAnswer:
        message = parse_json_exactly(body)
        error = failure_within({}, message.get("stop_reason"))
        made = message.get("content")
        raise_failure(message, made, key=target.key, error=error, size_of=size_of_blocks)
        return completion(message, provider=target.provider)

    def as_stream(self, body: bytes) -> bytes:
        return message_as_events(parse_json_exactly(body))

    def translator(self, request: Chat, *, target: Target, called: str | None) -> EventTranslator:
        return EventTranslator(
            include_usage=request.include_usage,
            called=called,
            key=target.key,
            provider=target.provider,
        )


def api_key(key: str) -> dict[str, str]:
    """The headers that authenticate a request."""
    return {"x-api-key": key, "anthropic-version": API_VERSION}
