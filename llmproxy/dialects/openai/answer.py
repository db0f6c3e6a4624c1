"""Reads a chat completion. What servers write in another shape than OpenAI's is put into it."""

from collections.abc import Callable
from typing import Any

from llmproxy.dialects.failures import raise_failure
from llmproxy.dialects.openai.texts import NO_TEXT, plain_size
from llmproxy.dialects.openai.usage import reported, usage_for_caller
from llmproxy.dialects.passing import OtherTexts, drop_costs
from llmproxy.dialects.protocol import ProviderError, TokenUsage
from llmproxy.dialects.reading import MALFORMED, parse_json


def completion(
    body: bytes, *, key: Callable[[], str]
) -> tuple[dict[str, Any], TokenUsage | None, int]:
    """The completion, the tokens reported, and the bytes of its text. Raises a problem for an error of the provider."""
    try:
        answer, _ = parse_json(body)
        raise_failure(answer, key=key, reported=reported)
        usage, choices = answer.pop("usage", None), answer["choices"]
        size = sum(plain_size(choice["message"])[0] for choice in choices)
        drop_costs(answer)
        size += OtherTexts(NO_TEXT).size(answer, *choices)
        known = reported(usage)
        if known is not None:
            answer["usage"] = usage_for_caller(usage, known)
    except MALFORMED:
        raise ProviderError from None
    if not choices:
        raise ProviderError
    return answer, known, size
