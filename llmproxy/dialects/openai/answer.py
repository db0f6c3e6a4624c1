"""Reads a chat completion. What servers write in another shape than OpenAI's is put into it."""

from collections.abc import Callable
from typing import Any

from llmproxy.dialects.failures import raise_failure
from llmproxy.dialects.openai.listed import drop_unlisted
from llmproxy.dialects.openai.texts import NotPlain, make_plain, output_size
from llmproxy.dialects.openai.usage import reported, told
from llmproxy.dialects.protocol import ProviderError, TokenUsage
from llmproxy.dialects.reading import parse_json


def completion(
    body: bytes, *, key: Callable[[], str], passes_all: bool = False
) -> tuple[dict[str, Any], TokenUsage | None, int]:
    """The completion, the tokens reported, and the bytes of its text. Raises a problem for an error of the provider."""
    try:
        answer, _ = parse_json(body)
        raise_failure(answer, key=key, reported=reported)
        choices = answer["choices"]
        size = sum(_size(choice["message"]) for choice in choices)
        if (known := reported(answer.get("usage"))) is not None:
            answer["usage"] = told(answer["usage"], known, passes_all=passes_all)
        if not passes_all:
            drop_unlisted(answer)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ProviderError from None
    if not choices:
        raise ProviderError
    return answer, known, size


def _size(message: dict[str, Any]) -> int:
    try:
        return output_size(message)
    except NotPlain:
        make_plain(message)
        return output_size(message)
