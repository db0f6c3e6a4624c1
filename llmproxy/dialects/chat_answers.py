"""Parts of chat completions that are the same for providers of every dialect."""

from dataclasses import replace
from typing import Any

from config.platform.problems.problem import Problem
from config.platform.problems.rendering import openai_error
from config.platform.request.request_id import current as request_id
from llmproxy.dialects.gathering import completion_of
from llmproxy.dialects.protocol import Codec, TokenUsage, Translator
from llmproxy.dialects.reading import usage_of
from llmproxy.dialects.sse import data_event
from llmproxy.requests.chat import Chat

DONE = b"data: [DONE]\n\n"


class ChatCodec(Codec):
    """Chat completions of one dialect."""

    def _write_usage(self, answer: dict[str, Any], charged: TokenUsage) -> None:
        answer["usage"] = usage_of(charged)

    def reporting(self, request: Chat) -> Chat:
        return replace(request, include_usage=True)

    def gathered(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        return completion_of(events)


class ChatTranslator(Translator):
    """The translator of one stream; ``include_usage``: its caller wants the usage before the end."""

    def __init__(self, *, include_usage: bool, **options: Any) -> None:
        super().__init__(**options)
        self._include_usage = include_usage
        self._finished = False

    def failure(self, problem: Problem) -> bytes:
        """The event that ends a stream in place of ``[DONE]``, in the form that OpenAI's SDKs and a shell read."""
        error = {**openai_error(problem), "status": problem.status, "request_id": request_id()}
        return data_event({"error": error})
