"""The OpenAPI schema of model calls."""

from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from llmproxy.chat_schema import CHAT_REQUEST, Schema

_USAGE: Schema = {
    "type": "object",
    "properties": {
        "prompt_tokens": {"type": "integer"},
        "completion_tokens": {"type": "integer"},
        "total_tokens": {"type": "integer"},
    },
    "required": ["prompt_tokens", "completion_tokens"],
}


def _choices(member: str, **required: list[str]) -> Schema:
    properties = {
        "index": {"type": "integer"},
        member: {"type": "object"},
        "finish_reason": {"type": ["string", "null"]},
    }
    return {"type": "array", "items": {"type": "object", "properties": properties, **required}}


COMPLETION: Schema = {
    "type": "object",
    "description": "A chat.completion object as OpenAI describes it.",
    "properties": {
        "id": {"type": "string"},
        "object": {"type": "string"},
        "created": {"type": "integer"},
        "model": {"type": "string"},
        "choices": _choices("message", required=["message"]),
        "usage": _USAGE,
    },
    "required": ["choices", "usage"],
}

_CHUNK: Schema = {
    "type": "object",
    "description": "A chat.completion.chunk object as OpenAI describes it.",
    "properties": {
        "choices": _choices("delta"),
        "usage": {"anyOf": [_USAGE, {"type": "null"}]},
    },
    "required": ["choices"],
}

_TEXT: Schema = {"type": "string"}
_ERROR: Schema = {
    "type": "object",
    "description": "The problem that ended the stream, with its members.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": _TEXT,
                "type": _TEXT,
                "code": _TEXT,
                "param": {"type": ["string", "null"]},
                "status": {"type": "integer"},
                "request_id": _TEXT,
            },
            "required": ["message", "type", "code", "param", "status", "request_id"],
        }
    },
    "required": ["error"],
}

# OpenAPI before version 3.2 cannot describe the items of a stream; programs read this as one item.
EVENT: Schema = {
    "type": "object",
    "description": (
        "One server-sent event. Its data is a chunk, or `[DONE]` at the end, or an error, which ends the stream "
        "instead. Comments keep a silent stream alive."
    ),
    "properties": {
        "data": {
            "type": "string",
            "if": {"const": "[DONE]"},
            "else": {
                "contentMediaType": "application/json",
                "contentSchema": {"anyOf": [_CHUNK, _ERROR]},
            },
        }
    },
    "required": ["data"],
}


def _streamed(value: bool) -> Schema:  # noqa: FBT001 - the value of the member
    """The request of an address that always streams, or never."""
    member = {**CHAT_REQUEST["properties"]["stream"], "enum": [value, None]}
    return {**CHAT_REQUEST, "properties": {**CHAT_REQUEST["properties"], "stream": member}}


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

CHAT_EXAMPLES = [
    OpenApiExample(
        "A question",
        value={"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 50},
        request_only=True,
    )
]
