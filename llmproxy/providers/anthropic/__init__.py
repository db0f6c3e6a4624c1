"""Anthropic's Messages API (https://docs.anthropic.com/en/api/messages), for callers of chat completions."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from config.api.problems import Problem
from llmproxy.chat import Chat
from llmproxy.providers.anthropic.answer import completion
from llmproxy.providers.anthropic.events import EventTranslator
from llmproxy.providers.anthropic.outgoing import message_request
from llmproxy.providers.anthropic.overhead import prompt_overhead
from llmproxy.providers.protocol import ProviderRequest, TokenUsage, Translator, json_request
from llmproxy.providers.refusals import problem_of
from llmproxy.tokens.images import anthropic_tokens

API_VERSION = "2023-06-01"


class Anthropic:
    """``LLM_BASE_URL`` is the base URL of Anthropic's own SDK, without ``/v1``."""

    name = "anthropic"

    def check(self, chat: Chat) -> None:
        message_request(chat, model="", output_limit=1)

    def image_tokens(self, image: Mapping[str, Any], *, model: str) -> int:
        return anthropic_tokens(image)

    def prompt_overhead(self, chat: Chat) -> int:
        return prompt_overhead(chat.members)

    def outgoing(self, chat: Chat, *, model: str, output_limit: int) -> ProviderRequest:
        body = message_request(chat, model=model, output_limit=output_limit)
        credential = {"x-api-key": settings.LLM_API_KEY(), "anthropic-version": API_VERSION}
        return json_request("/v1/messages", credential, body, streamed=chat.stream)

    def answer(self, body: bytes) -> tuple[dict[str, Any], TokenUsage | None, int]:
        return completion(body)

    def translator(self, chat: Chat, *, called: str | None = None) -> Translator:
        return EventTranslator(include_usage=chat.include_usage, called=called)

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Problem:
        return problem_of(status, headers, body)
