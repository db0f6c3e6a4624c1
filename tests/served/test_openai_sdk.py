"""OpenAI's own Python SDK, pointed at the service as it is: an address, and the access token as its key."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionToolParam
from pydantic import BaseModel

from licensing.models import Plan
from llmproxy.models import LanguageModel
from tests.served.conftest import SignIn
from tests.served.crowd import all_at_once
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of, the_record
from tests.served.people import Person, add_person, suspend
from tests.served.service import Service
from tests.served.shell import PATIENCE, Shell, stand_in
from tests.standins.provider_process import Provider
from tests.waiting import eventually

MODEL = "stand-in-small"
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


class Sdk(OpenAI):
    """The SDK, which also notes every request that it really sends."""

    def __init__(self, shell: Shell, *, max_retries: int = 0, api_key: str = "") -> None:
        self.sent: list[str] = []
        super().__init__(
            base_url=f"{shell.base_url}/v1/llm",
            api_key=api_key or shell.access,
            max_retries=max_retries,
            timeout=PATIENCE,
            http_client=openai.DefaultHttpxClient(
                trust_env=False,
                event_hooks={"request": [lambda request: self.sent.append(request.url.path)]},
            ),
        )

    def ask(self, text: str = "Hello", **options: Any) -> Any:
        given = {"model": MODEL, "messages": [{"role": "user", "content": text}], **options}
        return self.chat.completions.create(**given)


@pytest.fixture
def sdk(shell: Shell) -> Iterator[Sdk]:
    with Sdk(shell) as sdk:
        yield sdk


def test_the_sdk_gets_an_answer(sdk: Sdk) -> None:
    answer = sdk.ask("What is a haiku?", temperature=0.3, user="someone")
    assert "haiku" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_the_sdk_gets_a_stream_without_usage_unless_requested(
    sdk: Sdk, database: Database, person: Person
) -> None:
    with sdk.ask("Count.", stream=True) as stream:
        chunks = list(stream)
    assert "Count." in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert all(chunk.usage is None for chunk in chunks)
    record = the_record(database, person)
    assert (record.end, record.source) == ("done", "provider")
    assert record.output_tokens == sum(bool(chunk.choices[0].delta.content) for chunk in chunks)


def test_the_sdk_gets_the_requested_usage_of_a_stream(
    sdk: Sdk, database: Database, person: Person
) -> None:
    with sdk.ask(stream=True, stream_options={"include_usage": True}) as stream:
        *chunks, last = stream
    assert all(chunk.choices for chunk in chunks)
    assert last.choices == []
    record = the_record(database, person)
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (
        record.input_tokens,
        record.output_tokens,
    )


def test_the_sdk_lists_the_models(sdk: Sdk) -> None:
    models = list(sdk.models.list())
    assert [model.id for model in models] == [
        "stand-in-embedding",
        "stand-in-large",
        "stand-in-small",
    ]
    assert {model.object for model in models} == {"model"}


def test_the_sdk_retrieves_one_model(sdk: Sdk) -> None:
    model = sdk.models.retrieve(MODEL)
    assert model in list(sdk.models.list())
    told = model.model_dump()
    assert (told["max_output_tokens"], told["context_length"]) == (4096, None)
    assert told["surfaces"] == ["chat", "responses"]
    # Nobody has said that it takes images.
    assert (told["input_modalities"], told["output_modalities"]) == (["text"], ["text"])
    vectors = sdk.models.retrieve("stand-in-embedding").model_dump()
    assert (vectors["surfaces"], vectors["output_modalities"]) == (["embeddings"], ["embedding"])
    with pytest.raises(openai.NotFoundError, match="There is no model 'gpt-unknown'"):
        sdk.models.retrieve("gpt-unknown")


def test_the_sdk_calls_a_tool_and_returns_its_output(sdk: Sdk) -> None:
    messages: list[Any] = [{"role": "user", "content": "How is the weather in Kiel?"}]
    first = sdk.ask(messages=messages, tools=[WEATHER], tool_choice="required")
    (call,) = first.choices[0].message.tool_calls
    assert (call.type, call.function.name) == ("function", "weather")
    # An answer goes back as it came, with every member that the SDK puts into it.
    messages += [
        first.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "It is raining."},
    ]
    second = sdk.ask(messages=messages, tools=[WEATHER])
    assert "It is raining." in second.choices[0].message.content


def test_a_tool_call_comes_in_a_stream_as_well(sdk: Sdk) -> None:
    with sdk.ask("Rain?", tools=[WEATHER], tool_choice="required", stream=True) as stream:
        calls = [each for chunk in stream for each in chunk.choices[0].delta.tool_calls or ()]
    assert calls[0].function.name == "weather"
    assert "Rain?" in "".join(call.function.arguments or "" for call in calls)


def test_the_sdk_reads_a_stream_by_its_own_helper(sdk: Sdk) -> None:
    messages: list[Any] = [{"role": "user", "content": "Hello"}]
    with sdk.chat.completions.stream(model=MODEL, messages=messages) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert "Hello" in (answer.choices[0].message.content or "")


def test_a_stream_that_it_leaves_early_is_counted_and_not_left_open(
    sdk: Sdk, database: Database, provider: Provider, person: Person
) -> None:
    with sdk.ask(stand_in("tokens=100000 delay=0.02"), stream=True) as stream:
        for count, _ in enumerate(stream):
            if count == 5:
                break
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    record = the_record(database, person)
    assert (record.end, record.source) == ("client_gone", "counted")
    assert record.output_tokens >= 5
    assert_nothing_is_reserved(database, person)


def test_a_stream_that_it_leaves_after_the_last_word_is_done(
    sdk: Sdk, database: Database, person: Person
) -> None:
    with sdk.ask(stream=True) as stream:
        for chunk in stream:
            if chunk.choices[0].finish_reason:
                break
    record = the_record(database, person)
    assert record.end in {"done", "client_gone"}
    assert record.output_tokens > 0


def test_the_asynchronous_one_gets_the_same(shell: Shell) -> None:
    async def everything() -> tuple[str, str, list[str]]:
        async with AsyncOpenAI(
            base_url=f"{shell.base_url}/v1/llm",
            api_key=shell.access,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        ) as sdk:
            ask: Any = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
            answer, stream = await asyncio.gather(
                sdk.chat.completions.create(**ask),
                sdk.chat.completions.create(**ask, stream=True),
            )
            async with stream:
                pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
            models = [model.id async for model in sdk.models.list()]
            with pytest.raises(openai.NotFoundError):
                await sdk.chat.completions.create(**{**ask, "model": "nobody-knows"})
            return answer.choices[0].message.content, "".join(pieces), models

    answer, streamed, models = asyncio.run(everything())
    assert answer == streamed
    assert "Hello" in answer
    assert MODEL in models


class Place(BaseModel):
    """The schema that a model is asked to answer in."""

    city: str
    inhabitants: int


# The SDK warns of a message that it has itself read into a class.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_an_answer_is_held_to_a_schema_and_read_into_it(sdk: Sdk) -> None:
    messages: list[Any] = [{"role": "user", "content": "Which city?"}]
    ask: Any = {"model": MODEL, "messages": messages, "response_format": Place}
    whole = sdk.chat.completions.parse(**ask)
    with sdk.chat.completions.stream(**ask) as stream:
        streamed = stream.get_final_completion()
    for answer in (whole, streamed):
        assert isinstance(answer.choices[0].message.parsed, Place)
    # The parsed content is part of the message, and the message can go back as it is.
    messages += [whole.choices[0].message, {"role": "user", "content": "And now?"}]
    assert sdk.chat.completions.parse(**ask).choices[0].message.parsed


def test_the_asynchronous_helper_can_be_left_and_heard_to_the_end(
    shell: Shell, database: Database, provider: Provider, person: Person
) -> None:
    async def heard(text: str, *, most: int) -> list[str]:
        pieces = []
        async with (
            AsyncOpenAI(
                base_url=f"{shell.base_url}/v1/llm",
                api_key=shell.access,
                http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
            ) as sdk,
            sdk.chat.completions.stream(
                model=MODEL, messages=[{"role": "user", "content": text}]
            ) as stream,
        ):
            async for event in stream:
                if event.type == "content.delta" and event.delta:
                    pieces.append(event.delta)
                if len(pieces) == most:
                    break
        return pieces

    assert len(asyncio.run(heard(stand_in("tokens=20"), most=1_000))) == 20
    assert len(asyncio.run(heard(stand_in("tokens=100000 delay=0.02"), most=5))) == 5
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    eventually(lambda: all(record.end for record in records_of(database, person)))
    assert [record.end for record in records_of(database, person)] == ["done", "client_gone"]


@pytest.mark.parametrize(("retries", "streamed"), [(0, True), (2, False)])
@pytest.mark.parametrize(
    ("given", "code", "tries"),
    [
        ({"temperature": 3}, "invalid_request", 1),
        ({"model": "gpt-unknown"}, "model_not_found", 1),
        ({"model": "of-another-plan"}, "not_entitled", 1),
        ({"text": stand_in("fault=status:400")}, "provider_rejected", 1),
        ({"text": "x" * 8 * 1024 * 1024}, "request_too_large", 1),
        ({"text": stand_in("fault=status:500")}, "provider_error", 3),
        ({"text": stand_in("fault=html")}, "provider_error", 3),
        ({"text": stand_in("fault=status:429")}, "provider_unavailable", 3),
        ({"text": stand_in("fault=status:504")}, "provider_timeout", 3),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_is_tried_again_only_where_that_may_help(  # noqa: PLR0917 - parameters of a test
    shell: Shell,
    database: Database,
    person: Person,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    code: str,
    tries: int,
    retries: int,
    streamed: bool,
) -> None:
    # The SDK's pause between its tries is its own affair.
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    with database.rows():
        other, _ = LanguageModel.objects.get_or_create(name="of-another-plan")
        other.plans.add(Plan.objects.get_or_create(name="Another")[0])
    with Sdk(shell, max_retries=retries) as sdk:
        with pytest.raises(openai.APIStatusError) as raised:
            sdk.ask(**{"text": "Hello", **given}, stream=streamed)
        assert raised.value.code == code
        assert len(sdk.sent) == min(tries, retries + 1)
    records = records_of(database, person)
    assert len(records) == (0 if tries == 1 and code != "provider_rejected" else len(sdk.sent))
    assert sum((record.input_tokens or 0) + record.output_tokens for record in records) == 0
    assert_nothing_is_reserved(database, person) if records else None


def test_a_wrong_key_is_an_authentication_error(shell: Shell) -> None:
    with Sdk(shell, api_key="sk-wrong", max_retries=2) as sdk:
        with pytest.raises(openai.AuthenticationError) as raised:
            sdk.ask()
        assert (raised.value.code, raised.value.type) == (
            "invalid_access_token",
            "authentication_error",
        )
        assert raised.value.request_id
        assert len(sdk.sent) == 1
        with pytest.raises(openai.AuthenticationError):
            sdk.models.list()


def test_a_suspended_licence_is_a_permission_error(
    sdk: Sdk, database: Database, person: Person
) -> None:
    suspend(database, person)
    for streamed in (False, True):
        with pytest.raises(openai.PermissionDeniedError) as raised:
            sdk.ask(stream=streamed)
        assert raised.value.code == "licence_suspended"
        assert raised.value.status_code == 403
    assert records_of(database, person) == []


@pytest.mark.parametrize(
    ("caps", "code"),
    [
        ({"monthly_output": 20, "daily": 10_000}, "monthly_cap_exceeded"),
        ({"daily": 60}, "daily_limit_reached"),
    ],
)
def test_a_cap_that_is_used_up_is_a_rate_limit_error_that_it_does_not_try_again(
    service: Service, database: Database, sign_in: SignIn, caps: dict[str, int], code: str
) -> None:
    person = add_person(database, {"monthly_input": 10_000, "monthly_output": 10_000, **caps})
    with Sdk(sign_in(service, person), max_retries=2) as sdk:
        sdk.ask(stand_in("tokens=19"))
        for streamed in (False, True):
            sdk.sent.clear()
            with pytest.raises(openai.RateLimitError) as raised:
                sdk.ask(stand_in("tokens=19"), stream=streamed)
            assert raised.value.code == raised.value.type == "insufficient_quota"
            assert raised.value.response.json()["code"] == code
            assert raised.value.response.headers["x-should-retry"] == "false"
            assert len(sdk.sent) == 1
    assert len(records_of(database, person)) == 1


def test_the_rate_limit_is_a_rate_limit_error(
    brisk: Service, person: Person, sign_in: SignIn
) -> None:
    with Sdk(sign_in(brisk, person)) as sdk:

        def refusal(_: int) -> openai.RateLimitError | None:
            try:
                sdk.ask()
            except openai.RateLimitError as error:
                return error
            return None

        # One after the other they may take longer than the limit's two seconds.
        raised = next(each for _ in range(20) for each in all_at_once(12, refusal) if each)
        assert (raised.code, raised.type) == ("rate_limited", "rate_limit_error")
        assert 1 <= int(raised.response.headers["Retry-After"]) <= 3
        # A list of models is no call.
        assert list(sdk.models.list())


def test_past_the_rate_limit_it_waits_as_it_is_told_and_goes_on(
    brisk: Service, database: Database, person: Person, sign_in: SignIn
) -> None:
    with Sdk(sign_in(brisk, person), max_retries=5) as sdk:
        asked = 0
        while len(sdk.sent) == asked:
            asked += 8
            assert asked < 100
            assert all(each.choices for each in all_at_once(8, lambda _: sdk.ask()))
    assert len(records_of(database, person)) == asked


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"extra_body": {"api_base": "http://example.test"}}, "api_base"),
    ],
)
def test_a_fault_of_a_request_is_a_bad_request_error(
    sdk: Sdk, given: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        sdk.ask(**given)
    assert (raised.value.code, raised.value.param) == ("invalid_request", param)
    # All that most programs print of it.
    assert f"{param}: " in str(raised.value)


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 8192 tokens.",
        "prompt is too long: 212345 tokens > 200000 maximum",
    ],
)
def test_a_prompt_that_is_too_long_for_the_model_has_openais_code(sdk: Sdk, words: str) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        sdk.ask(stand_in(f'fault=status:400 message="{words}"'))
    assert raised.value.code == "context_length_exceeded"
    assert raised.value.response.json()["code"] == "provider_rejected"


def test_an_answer_says_what_is_left_as_openai_does(
    service: Service, database: Database, sign_in: SignIn
) -> None:
    caps = {"monthly_input": 10_000, "monthly_output": 10_000, "daily": 15_000}
    with Sdk(sign_in(service, add_person(database, caps))) as sdk:
        for streamed in (False, True):
            with sdk.chat.completions.with_streaming_response.create(
                model=MODEL,
                messages=[{"role": "user", "content": "Hello"}],
                max_tokens=1_000_000,
                stream=streamed,
            ) as answer:
                headers = answer.headers
            limit, left = (
                int(headers[f"x-ratelimit-{what}-requests"]) for what in ("limit", "remaining")
            )
            assert 0 <= left < limit
            assert headers["x-ratelimit-limit-tokens"] == "15000"
            assert int(headers["x-ratelimit-remaining-tokens"]) == min(
                int(headers["X-Tokens-Remaining-Month"]), int(headers["X-Tokens-Remaining-Day"])
            )
            for what in ("requests", "tokens"):
                assert re.fullmatch(r"\d+s", headers[f"x-ratelimit-reset-{what}"])
            assert int(headers["X-Output-Limit"]) < 1_000_000


def test_an_address_that_is_not_there_says_which_are(sdk: Sdk) -> None:
    with pytest.raises(openai.NotFoundError, match=r"chat/completions, .*models"):
        sdk.post("/moderations", body={}, cast_to=object)


def test_a_refusal_of_the_provider_is_a_bad_request_error_in_its_words(sdk: Sdk) -> None:
    with pytest.raises(openai.BadRequestError, match="It is too long") as raised:
        sdk.ask(stand_in('fault=status:400 message="It is too long."'))
    assert raised.value.code == "provider_rejected"


def test_an_unknown_model_is_not_found(sdk: Sdk, database: Database, person: Person) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        sdk.ask(model="gpt-unknown")
    assert raised.value.code == "model_not_found"
    assert "'gpt-unknown'" in raised.value.message
    assert raised.value.response.json()["code"] == "not_found"
    assert records_of(database, person) == []


def test_a_failure_in_the_middle_of_a_stream_is_an_error_and_not_an_end(sdk: Sdk) -> None:
    with sdk.ask(stand_in("tokens=20 fault=reset after=5"), stream=True) as stream:
        assert next(stream).choices
        with pytest.raises(openai.APIError) as raised:
            list(stream)
    assert raised.value.code == "provider_error"


def test_a_provider_that_fails_is_a_server_error(sdk: Sdk) -> None:
    with pytest.raises(openai.InternalServerError) as raised:
        sdk.ask(stand_in("fault=status:500"))
    assert (raised.value.status_code, raised.value.code) == (502, "provider_error")
