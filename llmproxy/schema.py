"""What the published schema says of model calls."""

from drf_spectacular.utils import OpenApiExample

from llmproxy.chat_schema import CHAT_REQUEST, Schema

__all__ = ["CHAT_EXAMPLES", "CHAT_REQUEST", "COMPLETION", "STREAM"]

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
    "required": ["choices"],
}

STREAM: Schema = {
    "type": "string",
    "description": (
        "Server-sent events: `data: {chat.completion.chunk}` as they come, comments in silence, then "
        "`data: [DONE]`; or `data: {error: {message, type, code, param, status, request_id}}` and no [DONE]."
    ),
}

CHAT_EXAMPLES = [
    OpenApiExample(
        "A question",
        value={"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 50},
        request_only=True,
    )
]
