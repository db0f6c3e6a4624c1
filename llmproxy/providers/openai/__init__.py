"""OpenAI's chat completions, and any server that speaks them (https://platform.openai.com/docs/api-reference/chat)."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from config.api.problems import Problem
from llmproxy.chat import Chat
from llmproxy.providers.openai.answer import completion
from llmproxy.providers.openai.events import EventTranslator
from llmproxy.providers.protocol import ProviderRequest, TokenUsage, Translator, json_request
from llmproxy.providers.refusals import problem_of
from llmproxy.tokens.images import openai_tokens


class OpenAI:
    """``LLM_BASE_URL`` is the base URL of OpenAI's own SDK, with its ``/v1``."""

    name = "openai"

    def check(self, chat: Chat) -> None:
        """Every valid call can be sent."""

    def image_tokens(self, image: Mapping[str, Any], *, model: str) -> int:
        return openai_tokens(image, model=model)

    def prompt_overhead(self, chat: Chat) -> int:
        return 0

    def outgoing(self, chat: Chat, *, model: str, output_limit: int) -> ProviderRequest:
        body: dict[str, Any] = {**chat.members, "model": model, chat.limit_member: output_limit}
        if chat.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        credential = {"Authorization": f"Bearer {settings.LLM_API_KEY()}"}
        return json_request("/chat/completions", credential, body, streamed=chat.stream)

    def answer(self, body: bytes) -> tuple[dict[str, Any], TokenUsage | None, int]:
        return completion(body)

    def translator(self, chat: Chat, *, called: str | None = None) -> Translator:
        return EventTranslator(called=called)

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Problem:
        return problem_of(status, headers, body)
