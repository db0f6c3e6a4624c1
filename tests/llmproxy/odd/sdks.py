"""Reads an answer by the SDKs of OpenAI and Anthropic."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx
import httpx2
import openai

from llmproxy.requests.call_request import Surface
from tests.llmproxy.odd.rows import Heard, arguments

SAID: Any = [{"role": "user", "content": "Hello"}]
REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
}
STATUSES = {"completed": "stop", "incomplete": "length"}


# The SDKs have taken different libraries for their connections.
LIBRARIES: dict[Surface, Any] = {Surface.MESSAGES: httpx2}


def heard(surface: Surface, body: bytes, *, stream: bool, encoding: Any = openai.omit) -> Heard:
    """Returns the SDK's reading of a body on a surface. Raises as it raises."""
    kind = "text/event-stream" if stream else "application/json"
    with answering(body, kind, LIBRARIES.get(surface, httpx)) as client:
        match surface:
            case Surface.MESSAGES:
                return _message(client, stream=stream)
            case Surface.RESPONSES:
                return _response(openai_sdk(client), stream=stream)
            case Surface.EMBEDDINGS:
                data = openai_sdk(client).embeddings.create(
                    model="m", input=["a", "b"], encoding_format=encoding
                )
                assert [each.index for each in data.data] == [*range(len(data.data))]
                return Heard(vectors=[each.embedding for each in data.data])
        return _chat(openai_sdk(client), stream=stream)


@contextmanager
def answering(body: bytes, kind: str, http: Any) -> Iterator[Any]:
    answer = http.Response(200, content=body, headers={"Content-Type": kind})
    with http.Client(transport=http.MockTransport(lambda request: answer)) as client:
        yield client


def openai_sdk(client: httpx.Client) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url="http://a.test", http_client=client, max_retries=0)


def _chat(sdk: openai.OpenAI, *, stream: bool) -> Heard:
    if stream:
        with sdk.chat.completions.stream(model="m", messages=SAID) as events:
            events.until_done()
            final: Any = events.current_completion_snapshot
    else:
        final = sdk.chat.completions.create(model="m", messages=SAID)
    (choice, *_) = final.choices
    said, calls = choice.message, choice.message.tool_calls or ()
    assert all(call.id for call in calls)
    thought = getattr(said, "reasoning_content", None) or getattr(said, "reasoning", None)
    return Heard(
        text=said.content or "",
        thought=thought or "",
        refusal=said.refusal or "",
        calls=[[call.function.name, arguments(call.function.arguments)] for call in calls],
        finish=choice.finish_reason,
    )


def _message(client: Any, *, stream: bool) -> Heard:
    sdk = anthropic.Anthropic(
        api_key="k", base_url="http://a.test", http_client=client, max_retries=0
    )
    if stream:
        with sdk.messages.stream(model="m", max_tokens=9, messages=SAID) as events:
            final: Any = events.get_final_message()
    else:
        final = sdk.messages.create(model="m", max_tokens=9, messages=SAID)
    made = Heard(finish=REASONS[final.stop_reason])
    for block in final.content:
        if block.type == "text":
            made.text += block.text
        if block.type == "thinking":
            assert block.signature is not None
            made.thought += block.thinking
        if block.type == "tool_use":
            assert block.id
            made.calls.append([block.name, block.input])
    return made


def _response(sdk: openai.OpenAI, *, stream: bool) -> Heard:
    if stream:
        with sdk.responses.stream(model="m", input="Hello") as events:
            for event in events:
                if event.type == "response.incomplete":
                    final: Any = event.response
            final = final if "final" in locals() else events.get_final_response()
    else:
        final = sdk.responses.create(model="m", input="Hello")
    made = Heard(text=final.output_text, finish=STATUSES[final.status])
    for item in final.output:
        if item.type == "function_call":
            assert item.call_id
            made.calls.append([item.name, arguments(item.arguments)])
            made.finish = "tool_calls"
        if item.type == "reasoning":
            made.thought += "".join(part.text for part in item.summary)
        if item.type == "message":
            made.refusal += "".join(part.refusal for part in item.content if part.type == "refusal")
    return made
