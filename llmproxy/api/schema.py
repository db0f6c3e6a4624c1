"""The OpenAPI schema of model calls: their answers, and the components that all model calls share."""

from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from llmproxy.api.message_schema import ANSWERS as OF_ANSWERED_MESSAGES
from llmproxy.requests.chat_schema import CHAT_REQUEST
from llmproxy.requests.chat_schema import COMPONENTS as CHAT
from llmproxy.requests.embeddings import COMPONENTS as OF_EMBEDDINGS
from llmproxy.requests.json_schema import (
    OPEN,
    OPTIONAL_TEXT,
    TEXT,
    Schema,
    answer_of,
    only,
    ref,
)
from llmproxy.requests.messages_schema import COMPONENTS as OF_MESSAGES
from llmproxy.requests.responses_schema import COMPONENTS as OF_RESPONSES

_WHOLE: Schema = {"type": "integer"}


def _choices(member: str, *required: str) -> Schema:
    parts = {"message": "ChatCompletionMessage", "delta": "ChatCompletionDelta"}
    choice = {"index": _WHOLE, member: ref(parts[member]), "finish_reason": OPTIONAL_TEXT}
    return {"type": "array", "items": answer_of(choice, *required)}


def _list_of(item: Schema) -> Schema:
    return {"type": ["array", "null"], "items": item}


def _details(*members: str) -> Schema:
    return {"type": ["object", "null"], "properties": dict.fromkeys(members, _WHOLE)}


_HEAD: Schema = {"id": TEXT, "object": TEXT, "created": _WHOLE, "model": TEXT}
# What a model says, in one piece and in many.
_SAID: Schema = {
    "content": OPTIONAL_TEXT,
    "refusal": OPTIONAL_TEXT,
    "reasoning_content": {
        **OPTIONAL_TEXT,
        "description": "Its thinking, where a provider tells it.",
    },
    "reasoning_details": {"type": ["array", "null"], "items": OPEN},
    "extra_content": {**OPEN, "type": ["object", "null"]},
}

_CALLED: Schema = answer_of({"name": TEXT, "arguments": TEXT}, "name", "arguments")
_PIECE: Schema = answer_of({"name": OPTIONAL_TEXT, "arguments": OPTIONAL_TEXT})

ANSWERS: Schema = {
    "ChatCompletion": answer_of(
        {**_HEAD, "choices": _choices("message", "message"), "usage": ref("CompletionUsage")},
        "choices",
        "usage",
        says="A chat.completion object as OpenAI describes it.",
    ),
    "ChatCompletionMessage": answer_of(
        {
            "role": {"const": "assistant"},
            **_SAID,
            "tool_calls": _list_of(ref("ChatCompletionToolCall")),
        },
        "role",
        says="A model's message, which may be sent back as it is.",
    ),
    "ChatCompletionToolCall": answer_of(
        {
            "id": TEXT,
            "type": {"type": "string", "enum": ["function", "custom"]},
            "function": _CALLED,
            "custom": answer_of({"name": TEXT, "input": TEXT}, "name", "input"),
            "extra_content": {**OPEN, "type": ["object", "null"]},
        },
        "id",
        says="A call of a tool that the model asks for; without a `type`, of a function.",
    ),
    "ChatCompletionChunk": answer_of(
        {
            **_HEAD,
            "choices": _choices("delta"),
            "usage": {"anyOf": [ref("CompletionUsage"), {"type": "null"}]},
        },
        "choices",
        says="A chat.completion.chunk object as OpenAI describes it.",
    ),
    "ChatCompletionDelta": answer_of(
        {
            "role": OPTIONAL_TEXT,
            **_SAID,
            "tool_calls": _list_of(
                answer_of(
                    {
                        "index": _WHOLE,
                        "id": OPTIONAL_TEXT,
                        "type": OPTIONAL_TEXT,
                        "function": _PIECE,
                    }
                )
            ),
        },
        says="The next piece of a message.",
    ),
    "CompletionUsage": answer_of(
        {
            "prompt_tokens": _WHOLE,
            "completion_tokens": _WHOLE,
            "total_tokens": _WHOLE,
            "prompt_tokens_details": _details("cached_tokens", "cache_write_tokens"),
            "completion_tokens_details": _details("reasoning_tokens"),
        },
        "prompt_tokens",
        "completion_tokens",
        says="The tokens of a call, as they are charged.",
    ),
    "StreamError": answer_of(
        {
            "error": answer_of(
                {
                    "message": TEXT,
                    "type": TEXT,
                    "code": TEXT,
                    "param": OPTIONAL_TEXT,
                    "status": _WHOLE,
                    "request_id": TEXT,
                },
                "message",
                "type",
                "code",
                "param",
                "status",
                "request_id",
            )
        },
        "error",
        says="The problem that ended the stream, with its members.",
    ),
    "StreamEvent": answer_of(
        {
            "data": {
                "type": "string",
                "if": {"const": "[DONE]"},
                "else": {
                    "contentMediaType": "application/json",
                    "contentSchema": {"anyOf": [ref("ChatCompletionChunk"), ref("StreamError")]},
                },
            }
        },
        "data",
    ),
    "ModelResponse": answer_of(
        {
            "id": TEXT,
            "object": {"const": "response"},
            "created_at": {"type": "number"},
            "status": TEXT,
            "model": TEXT,
            "output": {"type": "array", "items": ref("ResponseOutput")},
            "usage": {"anyOf": [ref("ResponseUsage"), {"type": "null"}]},
        },
        "id",
        "output",
        says="A response object as OpenAI describes it.",
    ),
    "ResponseOutput": answer_of(
        {
            "type": {**TEXT, "description": "`message`, `function_call`, `reasoning` or another."},
            "id": TEXT,
            "status": OPTIONAL_TEXT,
            "role": {"const": "assistant"},
            "content": _list_of(answer_of({"type": TEXT, "text": TEXT, "refusal": TEXT}, "type")),
            "call_id": TEXT,
            "name": TEXT,
            "arguments": TEXT,
            "input": TEXT,
            "summary": _list_of(answer_of({"type": TEXT, "text": TEXT}, "type")),
            "encrypted_content": OPTIONAL_TEXT,
        },
        "type",
        says="An item of what a model answers, with the members of its type.",
    ),
    "ResponseUsage": answer_of(
        {
            "input_tokens": _WHOLE,
            "input_tokens_details": _details("cached_tokens", "cache_write_tokens"),
            "output_tokens": _WHOLE,
            "output_tokens_details": _details("reasoning_tokens"),
            "total_tokens": _WHOLE,
        },
        "input_tokens",
        "output_tokens",
        "total_tokens",
        says="The tokens of a call, as they are charged.",
    ),
    "ResponseEvent": answer_of(
        {
            "event": TEXT,
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": answer_of(
                    {"type": TEXT, "sequence_number": _WHOLE, "response": ref("ModelResponse")},
                    "type",
                ),
            },
        },
        "event",
        "data",
    ),
    "Embeddings": answer_of(
        {
            "object": {"const": "list"},
            "model": TEXT,
            "data": {
                "type": "array",
                "items": answer_of(
                    {
                        "object": {"const": "embedding"},
                        "index": _WHOLE,
                        "embedding": {
                            "anyOf": [{"type": "array", "items": {"type": "number"}}, TEXT],
                            "description": "Numbers, or in base64 little-endian floats of 32 bits.",
                        },
                    },
                    "index",
                    "embedding",
                ),
            },
            "usage": answer_of(
                {"prompt_tokens": _WHOLE, "total_tokens": _WHOLE}, "prompt_tokens", "total_tokens"
            ),
        },
        "data",
        "usage",
        says="Embeddings in the order of the input, as OpenAI describes them.",
    ),
}
COMPLETION: Schema = ref("ChatCompletion")
RESPONSE: Schema = ref("ModelResponse")
EMBEDDINGS: Schema = ref("Embeddings")

# OpenAPI before version 3.2 cannot describe the items of a stream: some programs read this as one item, and generated
# clients as the text of all.
EVENT: Schema = {
    "description": (
        "Server-sent events. The data of each is a ChatCompletionChunk, or `[DONE]` at the end, or a StreamError, "
        "which ends the stream instead. Comments keep a silent stream alive."
    ),
    "anyOf": [ref("StreamEvent"), {"type": "string"}],
}
RESPONSE_EVENT: Schema = {
    "description": (
        "Server-sent events as OpenAI describes them. The last is `response.completed` or `response.incomplete`, with "
        "the usage that was charged; after a failure `error` and `response.failed`. Comments keep a silent stream "
        "alive."
    ),
    "anyOf": [ref("ResponseEvent"), {"type": "string"}],
}


def _streamed(value: bool) -> Schema:  # noqa: FBT001 - the value of the member
    """The request of an address that always streams, or never."""
    member = {"stream": only(value)}
    return {"allOf": [CHAT_REQUEST, {"type": "object", "properties": member}]}


COMPLETE_REQUEST: Schema = _streamed(False)
STREAM_REQUEST: Schema = _streamed(True)

REMAINING = [
    OpenApiParameter(
        f"X-Tokens-Remaining-{period}",
        str,
        OpenApiParameter.HEADER,
        response=[200],
        description=(
            f"Tokens left {what}: after a whole answer, before a stream (less what other running calls hold, but not "
            "itself); `unlimited` without a cap. Failures of the provider and refusals by a cap have it too, of after "
            "them; earlier refusals do not."
        ),
    )
    for period, what in (("Month", "this month, of the scarcer kind"), ("Day", "today"))
]
REMAINING += [
    OpenApiParameter(name, str, OpenApiParameter.HEADER, response=[200], description=description)
    for name, description in {
        "X-Output-Limit": (
            "The output tokens of this answer at most, where that is less than was asked for, or than the model's "
            "limit where no number was."
        ),
        "x-ratelimit-limit-requests": "The calls that are allowed in a window.",
        "x-ratelimit-remaining-requests": "Those that are left of it.",
        "x-ratelimit-reset-requests": "When it begins anew, as `12s`.",
        "x-ratelimit-limit-tokens": "The tokens that are allowed in a day, where there is such a limit.",
        "x-ratelimit-remaining-tokens": "The tokens left of the day or the month, whichever are fewer.",
        "x-ratelimit-reset-tokens": "When that day or month begins anew, as `3600s`.",
    }.items()
]

CHAT_EXAMPLES = [
    OpenApiExample(
        "A question",
        value={"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 50},
        request_only=True,
    )
]


def describe_calls(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Postprocessing: adds the components of model calls."""
    requests = {**CHAT, **OF_RESPONSES, **OF_EMBEDDINGS, **OF_MESSAGES}
    described = result["components"].setdefault("schemas", {})
    described |= {**requests, **ANSWERS, **OF_ANSWERED_MESSAGES}
    return result
