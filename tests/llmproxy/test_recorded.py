"""Recorded whole answers of providers, read to the end.

The files in `fixtures` are of our own making; their shapes are those of OpenAI's and Anthropic's APIs. Streams are
lines of `tests/standins/streams.ndjson`.
"""

from pathlib import Path

import pytest

from llmproxy.dialects.by_name import DIALECTS
from llmproxy.dialects.protocol import TokenUsage
from llmproxy.requests.call_request import Surface
from tests.llmproxy.targets import target

FIXTURES = Path(__file__).with_name("fixtures")


@pytest.mark.parametrize(
    ("name", "finish", "reported"),
    [
        ("openai", "stop", TokenUsage(1032, 73, 1024, 64)),
        ("anthropic", "tool_calls", TokenUsage(1029, 73, 1000, 64, 4)),
    ],
)
def test_a_whole_answer_is_read_in_one_shape(name: str, finish: str, reported: TokenUsage) -> None:
    body = (FIXTURES / f"{name}-answer.json").read_bytes()
    answer, told, size = DIALECTS[name].codecs[Surface.CHAT].answer(body, target=target(name))
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Four.", finish)
    assert told == reported
    assert size >= len("Four.")
    usage = answer["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == reported.cached_input
    assert usage["completion_tokens_details"]["reasoning_tokens"] == reported.reasoning
