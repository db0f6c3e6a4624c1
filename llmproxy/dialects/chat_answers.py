"""What callers of chat completions get in the same way from providers of every dialect."""

from typing import Any

from config.api.handlers import openai_error
from config.api.problems import Problem
from config.middleware.request_id import current as request_id
from llmproxy.dialects.protocol import TokenUsage
from llmproxy.dialects.reading import usage_of
from llmproxy.dialects.sse import data_event

DONE = b"data: [DONE]\n\n"


def completed(
    answer: dict[str, Any], *, called: str | None, charged: TokenUsage | None
) -> dict[str, Any]:
    """A whole answer with the callers' name of the model, and with the usage charged where no such was reported."""
    if called is not None:
        answer["model"] = called
    if charged is not None:
        answer["usage"] = usage_of(charged)
    return answer


def error_event(problem: Problem) -> bytes:
    """The event that ends a stream in place of ``[DONE]``, in the form that OpenAI's SDKs and a shell read."""
    error = {**openai_error(problem), "status": problem.status, "request_id": request_id()}
    return data_event({"error": error})
