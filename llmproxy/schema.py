"""The OpenAPI schema of model calls: their answers, and the components that all model calls share."""

from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from llmproxy.surfaces.chat_schema import CHAT_REQUEST
from llmproxy.surfaces.chat_schema import COMPONENTS as CHAT
from llmproxy.surfaces.embeddings import COMPONENTS as OF_EMBEDDINGS
from llmproxy.surfaces.json_schema import Schema, only, ref
from llmproxy.surfaces.message_answers import ANSWERS as OF_ANSWERED_MESSAGES
from llmproxy.surfaces.messages_schema import COMPONENTS as OF_MESSAGES
from llmproxy.surfaces.responses_schema import COMPONENTS as OF_RESPONSES

_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_WHOLE: Schema = {"type": "integer"}
_OPEN: Schema = {"type": "object", "additionalProperties": True}


def _answer(properties: Schema, *required: str, says: str = "") -> Schema:
    """An object of an answer, to which providers may add members."""
    described = {"description": says} if says else {}
    return {"type": "object", **described, "properties": properties, "required": list(required)}


def _choices(member: str, *required: str) -> Schema:
    parts = {"message": "ChatCompletionMessage", "delta": "ChatCompletionDelta"}
    choice = {"index": _WHOLE, member: ref(parts[member]), "finish_reason": _TEXT_OR_NULL}
    return {"type": "array", "items": _answer(choice, *required)}


def _list_of(item: Schema) -> Schema:
    return {"type": ["array", "null"], "items": item}


def _details(*members: str) -> Schema:
    return {"type": ["object", "null"], "properties": dict.fromkeys(members, _WHOLE)}


_HEAD: Schema = {"id": _TEXT, "object": _TEXT, "created": _WHOLE, "model": _TEXT}
# What a model says, in one piece and in many.
_SAID: Schema = {
    "content": _TEXT_OR_NULL,
    "refusal": _TEXT_OR_NULL,
    "reasoning_content": {
        **_TEXT_OR_NULL,
        "description": "Its thinking, where a provider tells it.",
    },
    "reasoning_details": {"type": ["array", "null"], "items": _OPEN},
    "extra_content": {**_OPEN, "type": ["object", "null"]},
}

_CALLED: Schema = _answer({"name": _TEXT, "arguments": _TEXT}, "name", "arguments")
_PIECE: Schema = _answer({"name": _TEXT_OR_NULL, "arguments": _TEXT_OR_NULL})

ANSWERS: Schema = {
    "ChatCompletion": _answer(
        {**_HEAD, "choices": _choices("message", "message"), "usage": ref("CompletionUsage")},
        "choices",
        "usage",
        says="A chat.completion object as OpenAI describes it.",
    ),
    "ChatCompletionMessage": _answer(
        {
            "role": {"const": "assistant"},
            **_SAID,
            "tool_calls": _list_of(ref("ChatCompletionToolCall")),
        },
        "role",
        says="A model's message, which may be sent back as it is.",
    ),
    "ChatCompletionToolCall": _answer(
        {
            "id": _TEXT,
            "type": {"type": "string", "enum": ["function", "custom"]},
            "function": _CALLED,
            "custom": _answer({"name": _TEXT, "input": _TEXT}, "name", "input"),
            "extra_content": {**_OPEN, "type": ["object", "null"]},
        },
        "id",
        says="A call of a tool that the model asks for; without a `type`, of a function.",
    ),
    "ChatCompletionChunk": _answer(
        {
            **_HEAD,
            "choices": _choices("delta"),
            "usage": {"anyOf": [ref("CompletionUsage"), {"type": "null"}]},
        },
        "choices",
        says="A chat.completion.chunk object as OpenAI describes it.",
    ),
    "ChatCompletionDelta": _answer(
        {
            "role": _TEXT_OR_NULL,
            **_SAID,
            "tool_calls": _list_of(
                _answer(
                    {
                        "index": _WHOLE,
                        "id": _TEXT_OR_NULL,
                        "type": _TEXT_OR_NULL,
                        "function": _PIECE,
                    }
                )
            ),
        },
        says="The next piece of a message.",
    ),
    "CompletionUsage": _answer(
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
    "StreamError": _answer(
        {
            "error": _answer(
                {
                    "message": _TEXT,
                    "type": _TEXT,
                    "code": _TEXT,
                    "param": _TEXT_OR_NULL,
                    "status": _WHOLE,
                    "request_id": _TEXT,
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
    "StreamEvent": _answer(
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
    "ModelResponse": _answer(
        {
            "id": _TEXT,
            "object": {"const": "response"},
            "created_at": {"type": "number"},
            "status": _TEXT,
            "model": _TEXT,
            "output": {"type": "array", "items": ref("ResponseOutput")},
            "usage": {"anyOf": [ref("ResponseUsage"), {"type": "null"}]},
        },
        "id",
        "output",
        says="A response object as OpenAI describes it.",
    ),
    "ResponseOutput": _answer(
        {
            "type": {**_TEXT, "description": "`message`, `function_call`, `reasoning` or another."},
            "id": _TEXT,
            "status": _TEXT_OR_NULL,
            "role": {"const": "assistant"},
            "content": _list_of(_answer({"type": _TEXT, "text": _TEXT, "refusal": _TEXT}, "type")),
            "call_id": _TEXT,
            "name": _TEXT,
            "arguments": _TEXT,
            "input": _TEXT,
            "summary": _list_of(_answer({"type": _TEXT, "text": _TEXT}, "type")),
            "encrypted_content": _TEXT_OR_NULL,
        },
        "type",
        says="An item of what a model answers, with the members of its type.",
    ),
    "ResponseUsage": _answer(
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
    "ResponseEvent": _answer(
        {
            "event": _TEXT,
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": _answer(
                    {"type": _TEXT, "sequence_number": _WHOLE, "response": ref("ModelResponse")},
                    "type",
                ),
            },
        },
        "event",
        "data",
    ),
    "Embeddings": _answer(
        {
            "object": {"const": "list"},
            "model": _TEXT,
            "data": {
                "type": "array",
                "items": _answer(
                    {
                        "object": {"const": "embedding"},
                        "index": _WHOLE,
                        "embedding": {
                            "anyOf": [{"type": "array", "items": {"type": "number"}}, _TEXT],
                            "description": "Numbers, or in base64 little-endian floats of 32 bits.",
                        },
                    },
                    "index",
                    "embedding",
                ),
            },
            "usage": _answer(
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
