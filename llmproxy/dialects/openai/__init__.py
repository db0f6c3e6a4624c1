"""OpenAI's chat completions, and any server that speaks them (https://platform.openai.com/docs/api-reference/chat)."""

from typing import Any

from llmproxy.dialects import chat_answers
from llmproxy.dialects.openai.answer import completion
from llmproxy.dialects.openai.events import EventTranslator
from llmproxy.dialects.openai.outgoing import outgoing_members
from llmproxy.dialects.protocol import ProviderRequest, Target, TokenUsage, Translator
from llmproxy.requests.chat import Chat


class ChatCompletions:
    """Chat completions. The base URL is that of OpenAI's own SDK, with its ``/v1``."""

    def check(self, request: Chat) -> None:
        """Every valid call can be sent."""

    def prompt_overhead(self, request: Chat) -> int:
        return 0

    def outgoing(self, request: Chat, *, target: Target, output_limit: int) -> ProviderRequest:
        body = outgoing_members(request.members_within(output_limit), target=target)
        # OpenAI does not take the newer name beside a prediction.
        name = "max_tokens" if "prediction" in request.members else target.limit_name
        body |= {"model": target.model, name: output_limit}
        if request.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return target.post("/chat/completions", body, streamed=request.stream)

    def answer(
        self, body: bytes, *, target: Target
    ) -> tuple[dict[str, Any], TokenUsage | None, int]:
        return completion(body, key=target.key)

    def completed(
        self, answer: dict[str, Any], *, called: str | None, charged: TokenUsage | None
    ) -> dict[str, Any]:
        return chat_answers.completed(answer, called=called, charged=charged)

    def translator(self, request: Chat, *, target: Target, called: str | None) -> Translator:
        return EventTranslator(include_usage=request.include_usage, key=target.key, called=called)


def bearer(key: str) -> dict[str, str]:
    """The headers that authenticate a request."""
    return {"Authorization": f"Bearer {key}"}
