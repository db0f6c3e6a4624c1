"""A chat-completions request, read and checked as OpenAI would."""

import json
from dataclasses import dataclass
from typing import Any

from tests.standins.provider.checks import a_string, an_array, invalid, required
from tests.standins.provider.directive import Directive, read_directive
from tests.standins.provider.failures import ApiError
from tests.standins.provider.members import (
    MEMBERS,
    read_format,
    read_limit,
    read_logprobs,
    read_stops,
    read_stream_options,
    read_tool_choice,
    read_tools,
)
from tests.standins.provider.messages import check_messages
from tests.standins.provider.tokens import count_prompt, parts, text_of

# model: the tokens of input that it takes.
MODELS = {"stand-in-small": 128_000, "stand-in-large": 1_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A checked request: what to answer, how long at most, and in which shape."""

    model: str
    question: str  # the last user message without its directive
    tool_answer: str | None  # the last message's text, where that is a tool's
    images: int
    limit: int | None
    stops: tuple[str, ...]
    tools: tuple[dict[str, Any], ...]
    tool_choice: str  # "none", "auto", "required" or a tool's name
    parallel: bool
    json_object: bool
    schema: dict[str, Any] | None
    stream: bool
    include_usage: bool
    obfuscate: bool
    logprobs: int | None  # how many alternatives, or none at all
    prompt_tokens: int
    directive: Directive


def read_chat(body: dict[str, Any]) -> Chat:
    """A request from its JSON object; raises `ApiError`."""
    base, query = _read_model(body)
    for name, value in body.items():
        if name not in MEMBERS:
            raise invalid(name, f"Unrecognized request argument supplied: {name}", None)
        if value is not None:
            MEMBERS[name](name, value)
    messages = required(body, "messages", "messages", an_array)
    check_messages(messages)
    tools = read_tools(body)
    json_object, schema = read_format(body, messages)
    options = read_stream_options(body)
    prompt_tokens = count_prompt(messages, list(tools), schema)
    _check_window(base, prompt_tokens)
    directive, question = read_directive(_last_text(messages), query)
    return Chat(
        model=body["model"],
        question=question,
        tool_answer=text_of(messages[-1]) if messages[-1]["role"] == "tool" else None,
        images=sum(part["type"] == "image_url" for item in messages for part in parts(item)),
        limit=read_limit(body),
        stops=read_stops(body.get("stop")),
        tools=tools,
        tool_choice=read_tool_choice(body, tools),
        parallel=body.get("parallel_tool_calls") is not False,
        json_object=json_object,
        schema=schema,
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        obfuscate=bool(options.get("include_obfuscation")),
        logprobs=read_logprobs(body),
        prompt_tokens=prompt_tokens,
        directive=directive,
    )


def _read_model(body: dict[str, Any]) -> tuple[str, str]:
    model = body.get("model")
    if model is None or model == "":
        raise invalid("model", "you must provide a model parameter", None)
    a_string("model", model)
    base, _, query = str(model).partition("?")
    if base not in MODELS:
        raise ApiError(
            404,
            f"The model `{base}` does not exist or you do not have access to it.",
            param="model",
            code="model_not_found",
        )
    return base, query


def _check_window(base: str, prompt_tokens: int) -> None:
    if prompt_tokens > MODELS[base]:
        raise invalid(
            "messages",
            f"This model's maximum context length is {MODELS[base]} tokens. However, your "
            f"messages resulted in {prompt_tokens} tokens. Please reduce the length of the "
            "messages.",
            "context_length_exceeded",
        )


def _last_text(messages: list[dict[str, Any]]) -> str:
    return next((text_of(item) for item in reversed(messages) if item["role"] == "user"), "")


def read_body(raw: bytes) -> dict[str, Any]:
    """The JSON object in a request's body; raises `ApiError` 400."""
    try:
        body = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise ApiError(
            400,
            "We could not parse the JSON body of your request. The API expects a JSON object, "
            "but what was sent is none.",
        )
    return body


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
