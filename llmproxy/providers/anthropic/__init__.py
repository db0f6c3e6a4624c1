"""Anthropic's Messages API (https://docs.anthropic.com/en/api/messages), for callers of chat completions."""

from collections.abc import Mapping
from json import dumps
from typing import Any

from django.conf import settings

from config.api.problems import Problem
from llmproxy.chat import Chat
from llmproxy.providers.anthropic.answer import completion
from llmproxy.providers.anthropic.events import EventTranslator
from llmproxy.providers.anthropic.outgoing import message_request
from llmproxy.providers.anthropic.overhead import LARGEST_IMAGE, prompt_overhead
from llmproxy.providers.anthropic.refusals import refusal
from llmproxy.providers.protocol import ProviderRequest, TokenUsage, Translator

API_VERSION = "2023-06-01"


class Anthropic:
    """``LLM_BASE_URL`` is as Anthropic's own SDK takes it, without ``/v1``."""

    name = "anthropic"
    image_tokens = LARGEST_IMAGE

    def check(self, chat: Chat) -> None:
        message_request(chat, model="", output_limit=1)

    def prompt_overhead(self, chat: Chat) -> int:
        return prompt_overhead(chat.members)

    def outgoing(self, chat: Chat, *, model: str, output_limit: int) -> ProviderRequest:
        body = message_request(chat, model=model, output_limit=output_limit)
        return ProviderRequest(
            url=f"{settings.LLM_BASE_URL}/v1/messages",
            headers={
                "x-api-key": settings.LLM_API_KEY(),
                "anthropic-version": API_VERSION,
                "Content-Type": "application/json",
                "Accept": "text/event-stream" if chat.stream else "application/json",
                "User-Agent": f"shell-backend/{settings.VERSION}",
            },
            body=dumps(body, ensure_ascii=True, separators=(",", ":")).encode(),
        )

    def answer(self, body: bytes) -> tuple[dict[str, Any], TokenUsage | None, int]:
        return completion(body)

    def translator(self, chat: Chat, *, called: str | None = None) -> Translator:
        return EventTranslator(include_usage=chat.include_usage, called=called)

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Problem:
        return refusal(status, headers, body)
