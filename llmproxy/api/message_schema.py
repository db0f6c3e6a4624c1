"""The OpenAPI schema of the answers to calls of Anthropic's Messages API."""

from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from llmproxy.requests.json_schema import OPTIONAL_TEXT, TEXT, Schema, answer_of, any_of, ref
from llmproxy.requests.messages import VERSIONS

_TOKENS: Schema = {"type": "integer", "minimum": 0}
_OPTIONAL_TOKENS: Schema = {"type": ["integer", "null"], "minimum": 0}


def _block(kind: str, properties: Schema) -> Schema:
    return answer_of({"type": {"const": kind}, **properties}, "type", *properties)


_BLOCKS: Schema = {
    "MessageText": _block("text", {"text": TEXT}),
    "MessageThinking": _block("thinking", {"thinking": TEXT, "signature": TEXT}),
    "MessageRedactedThinking": _block("redacted_thinking", {"data": TEXT}),
    "MessageToolUse": _block(
        "tool_use",
        {"id": TEXT, "name": TEXT, "input": {"type": "object", "additionalProperties": True}},
    ),
}

ANSWERS: Schema = {
    **_BLOCKS,
    "MessageAnswer": answer_of(
        {
            "id": TEXT,
            "type": {"const": "message"},
            "role": {"const": "assistant"},
            "model": TEXT,
            "content": {"type": "array", "items": any_of(*map(ref, _BLOCKS))},
            "stop_reason": OPTIONAL_TEXT,
            "stop_sequence": OPTIONAL_TEXT,
            "usage": ref("MessageUsage"),
        },
        *("id", "type", "role", "model", "content", "usage"),
        says="A message as Anthropic describes it. Its content may be sent back as it is.",
    ),
    "MessageUsage": answer_of(
        {
            "input_tokens": {
                **_TOKENS,
                "description": "Without those read from or written to a cache.",
            },
            "output_tokens": _TOKENS,
            "cache_creation_input_tokens": _OPTIONAL_TOKENS,
            "cache_read_input_tokens": _OPTIONAL_TOKENS,
        },
        "input_tokens",
        "output_tokens",
        says="The tokens of a call, as they are charged.",
    ),
    "MessageEventData": answer_of(
        {
            "type": {
                "enum": [
                    *("message_start", "content_block_start", "content_block_delta"),
                    *("content_block_stop", "message_delta", "message_stop", "ping", "error"),
                ]
            },
            "message": ref("MessageAnswer"),
            "index": _TOKENS,
            "content_block": any_of(*map(ref, _BLOCKS)),
            "delta": {"type": "object", "additionalProperties": True},
            "usage": {"type": "object", "additionalProperties": True},
            "error": ref("AnthropicError"),
            "request_id": TEXT,
        },
        "type",
        says="The data of an event; `message_delta` has the usage charged.",
    ),
    "MessageEvent": answer_of(
        {
            "event": TEXT,
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": ref("MessageEventData"),
            },
        },
        "event",
        "data",
    ),
    "MessageCount": answer_of({"input_tokens": _TOKENS}, "input_tokens"),
}
MESSAGE: Schema = ref("MessageAnswer")
COUNT: Schema = ref("MessageCount")
# As of chat completions: OpenAPI before version 3.2 cannot describe the items of a stream.
MESSAGE_EVENT: Schema = {
    "description": (
        "Server-sent events as Anthropic describes them. The last is `message_stop`, or an `error`, which ends the "
        "stream instead. Comments keep a silent stream alive."
    ),
    "anyOf": [ref("MessageEvent"), TEXT],
}

HEADERS = [
    OpenApiParameter(
        "anthropic-version",
        str,
        OpenApiParameter.HEADER,
        enum=VERSIONS,
        description=f"{' or '.join(VERSIONS)}; absent, the first.",
    ),
    OpenApiParameter(
        "anthropic-beta",
        str,
        OpenApiParameter.HEADER,
        description="Names joined by commas. Those that change neither a price nor the meaning of usage go on to the "
        "provider; others are left out.",
    ),
]
MESSAGE_EXAMPLES = [
    OpenApiExample(
        "A question",
        value={"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 50},
        request_only=True,
    )
]
