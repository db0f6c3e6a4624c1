"""The stand-in provider behaves as an OpenAI-compatible server does, by OpenAI's own SDK, and fails on demand."""

import json
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import openai
import pytest

from tests.standins.provider_process import DEADLINE, Provider, running_provider

MODEL = "stand-in-small"
PARAMETERS = {
    "type": "object",
    "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
WITH_USAGE = {"stream_options": {"include_usage": True}}


class Sdk(openai.OpenAI):
    """OpenAI's SDK without retries."""

    def __init__(self, provider: Provider, *, key: str = "any-key") -> None:
        client = openai.DefaultHttpxClient(trust_env=False)
        super().__init__(base_url=provider.base_url, api_key=key, max_retries=0, http_client=client)

    def ask(self, text: str, **members: Any) -> Any:
        messages = [{"role": "user", "content": text}]
        return self.chat.completions.create(**{"model": MODEL, "messages": messages, **members})

    def stream(self, text: str, **members: Any) -> list[Any]:
        with self.ask(text, stream=True, **members) as stream:
            return list(stream)


@pytest.fixture
def sdk(provider: Provider) -> Iterator[Sdk]:
    with Sdk(provider) as sdk:
        yield sdk


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_a_stream_and_a_one_shot_answer_say_and_cost_the_same(sdk: Sdk) -> None:
    whole = sdk.ask("What is a haiku?")
    *chunks, last = sdk.stream("What is a haiku?", **WITH_USAGE)
    assert "haiku" in whole.choices[0].message.content
    assert text_of(chunks) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "stop"]
    assert last.choices == []
    assert last.usage == whole.usage
    assert whole.usage.completion_tokens == len(chunks) - 2
    assert all(chunk.usage is None for chunk in sdk.stream("And without?"))


@pytest.mark.parametrize("member", ["max_tokens", "max_completion_tokens"])
def test_a_limit_cuts_the_answer(sdk: Sdk, member: str) -> None:
    answer = sdk.ask("[[stand-in: tokens=20]]", **{member: 7})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 7
    assert sdk.ask("[[stand-in: overrun=5]]", **{member: 7}).usage.completion_tokens == 12


def test_a_tool_is_called_and_its_result_taken(sdk: Sdk) -> None:
    first = sdk.ask("Kiel", tools=[WEATHER]).choices[0]
    assert first.finish_reason == "tool_calls"
    [call] = first.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather",
        {"place": "Kiel", "days": 1},
    )
    deltas = [chunk.choices[0].delta for chunk in sdk.stream("Kiel", tools=[WEATHER])]
    streamed = [call.function for delta in deltas for call in delta.tool_calls or ()]
    assert streamed[0].name == "weather"
    assert "".join(each.arguments for each in streamed) == call.function.arguments
    messages = [
        {"role": "user", "content": "Kiel"},
        first.message,
        {"role": "tool", "tool_call_id": call.id, "content": "It is raining."},
    ]
    second = sdk.ask("", messages=messages, tools=[WEATHER]).choices[0]
    assert "It is raining." in second.message.content
    assert sdk.ask("Kiel", tools=[WEATHER], tool_choice="none").choices[0].finish_reason == "stop"


def test_an_answer_fits_its_schema(sdk: Sdk) -> None:
    form = {"name": "forecast", "schema": PARAMETERS}
    answer = sdk.ask("Kiel", response_format={"type": "json_schema", "json_schema": form})
    assert json.loads(answer.choices[0].message.content) == {"place": "Kiel", "days": 1}
    answer = sdk.ask("Some JSON", response_format={"type": "json_object"})
    assert json.loads(answer.choices[0].message.content) == {"reply": "Some JSON"}


def test_models_are_listed(sdk: Sdk) -> None:
    assert [model.id for model in sdk.models.list()] == [
        "stand-in-small",
        "stand-in-large",
        "stand-in-embedding",
    ]


@pytest.mark.parametrize(
    "members",
    [
        {"messages": []},
        {"extra_body": {"unheard_of": 1}},
        {"max_tokens": 1, "max_completion_tokens": 1},
        WITH_USAGE,
    ],
)
def test_a_bad_request_is_refused(sdk: Sdk, members: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError):
        sdk.ask("Hello", **members)


def test_an_unknown_model_is_not_found(sdk: Sdk) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        sdk.ask("Hello", model="gpt-4o")
    assert raised.value.code == "model_not_found"


@pytest.mark.parametrize("directive", ["tokens=many", "nothing=1", "fault=none", "tokens"])
def test_a_directive_with_a_mistake_is_refused(sdk: Sdk, directive: str) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        sdk.ask(f"[[stand-in: {directive}]]")
    assert raised.value.code == "invalid_directive"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429, 500, 503])
def test_a_status_is_the_sdks_own_exception(sdk: Sdk, status: int) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        sdk.ask(f'[[stand-in: fault=status:{status} message="No, thanks." retry_after=7]]')
    assert raised.value.status_code == status
    assert raised.value.message.endswith("No, thanks.") or "No, thanks." in str(raised.value)
    assert raised.value.response.headers["Retry-After"] == "7"


@pytest.mark.parametrize("fault", ["reset", "cut", "malformed", "error"])
def test_a_stream_fails_where_it_should(sdk: Sdk, fault: str) -> None:
    with sdk.ask(f"[[stand-in: tokens=9 fault={fault} after=4]]", stream=True) as stream:
        assert [next(stream).choices[0].finish_reason for _ in range(4)] == [None] * 4
        with pytest.raises((openai.APIError, httpx.HTTPError, ValueError)):
            next(stream)


def test_a_stream_can_end_too_early(sdk: Sdk) -> None:
    chunks = sdk.stream("[[stand-in: tokens=9 fault=truncate after=4]]")
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 4


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("fault", ["reset", "cut"])
def test_a_one_shot_answer_can_break_off(sdk: Sdk, fault: str, after: int) -> None:
    with pytest.raises(openai.APIConnectionError):
        sdk.ask(f"[[stand-in: fault={fault} after={after}]]")


def test_given_events_are_sent_as_they_are(sdk: Sdk) -> None:
    content = {"choices": [{"index": 0, "delta": {"content": "é"}}]}
    events = [f"data: {json.dumps(content)}\n", "\n", "data: [DONE]\n\n"]
    assert text_of(sdk.stream(f"[[stand-in: send='{json.dumps(events)}' ]]")) == "é"


@pytest.mark.wall_time
def test_events_come_in_their_time_and_can_name_it(sdk: Sdk) -> None:
    chunks = sdk.stream("[[stand-in: tokens=5 delay=0.05 clock=yes]]")
    due = [float(text_of([chunk])) for chunk in chunks if text_of([chunk])]
    assert [round(later - sooner, 3) for sooner, later in pairwise(due)] == [0.05] * 4
    assert due[-1] <= time.monotonic()
    began = time.monotonic()
    sdk.ask("[[stand-in: first=0.2]]")
    assert time.monotonic() - began >= 0.2


def test_a_client_that_leaves_is_noticed(sdk: Sdk, provider: Provider) -> None:
    for directive in ("fault=stall after=2", "tokens=100000 delay=60", "tokens=1000000"):
        provider.reset()
        with sdk.ask(f"[[stand-in: {directive}]]", stream=True) as stream:
            next(stream)
            next(stream)
            assert provider.stats()["streams_open"] == 1
        gone = provider.wait_for(lambda stats: stats["requests_open"] == 0)
        assert (gone["streams_open"], gone["streams_aborted"]) == (0, 1)


def test_a_test_can_see_what_was_sent_but_not_the_key(provider: Provider) -> None:
    with Sdk(provider, key="very-secret") as sdk:
        sdk.ask("Hello", temperature=0.5)
    last = provider.last()
    assert last["body"]["temperature"] == 0.5
    assert "authorization" in last["header_names"]
    assert "very-secret" not in json.dumps(last)


def test_the_provider_accepts_no_other_key_than_its_own_and_ends_by_its_signal() -> None:
    stalled = "[[stand-in: fault=stall after=1]]"
    with (
        running_provider(api_key="right") as provider,
        Sdk(provider, key="wrong") as other,
        Sdk(provider, key="right") as sdk,
        sdk.ask(stalled, stream=True),
    ):
        with pytest.raises(openai.AuthenticationError):
            other.models.list()
        provider.process.send_signal(signal.SIGINT)
        assert provider.process.wait(DEADLINE) == 0


def test_the_provider_ends_with_its_starter() -> None:
    with running_provider() as provider:
        assert provider.process.stdin is not None
        provider.process.stdin.close()
        assert provider.process.wait(DEADLINE) == 0
