"""The schema of model calls in the published OpenAPI document."""

from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from llmproxy.chat_schema import CHAT_REQUEST, Schema

__all__ = [
    "CHAT_EXAMPLES",
    "CHAT_REQUEST",
    "COMPLETE_REQUEST",
    "COMPLETION",
    "EVENT",
    "REMAINING",
    "STREAM_REQUEST",
]

_USAGE: Schema = {
    "type": "object",
    "properties": {
        "prompt_tokens": {"type": "integer"},
        "completion_tokens": {"type": "integer"},
        "total_tokens": {"type": "integer"},
    },
    "required": ["prompt_tokens", "completion_tokens"],
}

COMPLETION: Schema = {
    "type": "object",
    "description": "A chat.completion object as OpenAI describes it.",
    "properties": {
        "id": {"type": "string"},
        "object": {"type": "string"},
        "created": {"type": "integer"},
        "model": {"type": "string"},
        "choices": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "index": {"type": "integer"},
                    "message": {"type": "object"},
                    "finish_reason": {"type": ["string", "null"]},
                },
                "required": ["message"],
            },
        },
        "usage": _USAGE,
    },
    "required": ["choices", "usage"],
}

_CHUNK: Schema = {
    "type": "object",
    "description": "A chat.completion.chunk object as OpenAI describes it.",
    "properties": {
        "choices": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "index": {"type": "integer"},
                    "delta": {"type": "object"},
                    "finish_reason": {"type": ["string", "null"]},
                },
            },
        },
        "usage": {"anyOf": [_USAGE, {"type": "null"}]},
    },
    "required": ["choices"],
}

_TEXT: Schema = {"type": "string"}
_ERROR: Schema = {
    "type": "object",
    "description": "What ended the stream; the members are those of a problem.",
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

# Before version 3.2 of OpenAPI there is no word for the items of a stream, and programs take this for one item.
EVENT: Schema = {
    "type": "object",
    "description": (
        "One server-sent event. Each has a chunk, and the last one `[DONE]`; or an error, after which nothing "
        "comes. Comments come in silence."
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
    """The request as an address takes it that streams always, or never."""
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
            f"Tokens left {what}, as of admission; `unlimited` where there is no cap. Also on failures of the "
            "provider and on refusals by a cap, but not on what is refused before tokens are looked at."
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
