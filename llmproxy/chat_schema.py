"""The JSON Schema (2020-12) of a model call: the supported members of OpenAI's chat completion.

Requests are validated by the schema that is published, so the two cannot differ. Every object is closed except those
that hold a caller's schema, so only members named here can reach a provider.
"""

from typing import Any

Schema = dict[str, Any]


def _closed(properties: Schema, *required: str) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _or_null(schema: Schema) -> Schema:
    kind = schema["type"]
    kinds = kind if isinstance(kind, list) else [kind]
    return {**schema, "type": [*kinds, "null"]}


def _number(low: float, high: float) -> Schema:
    return {"type": ["number", "null"], "minimum": low, "maximum": high}


_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_ID: Schema = {"type": "string", "maxLength": 256}
_FLAG: Schema = {"type": ["boolean", "null"]}
_FREE: Schema = {"type": "object", "description": "A JSON Schema that the caller chooses."}
_LIMIT: Schema = {"type": ["integer", "null"], "minimum": 1, "maximum": 1_000_000}

_PART: Schema = {
    **_closed(
        {
            "type": {"type": "string", "enum": ["text", "image_url", "refusal"]},
            "text": _TEXT,
            "refusal": _TEXT,
            "image_url": _closed(
                {
                    "url": {
                        "type": "string",
                        "pattern": "^(https://|data:image/)",
                        "description": "No literal address and no userinfo. `data:` alone where the provider is at a "
                        "loopback or private address.",
                    },
                    "detail": {"type": "string", "enum": ["auto", "low", "high"]},
                },
                "url",
            ),
        },
        "type",
    ),
    "allOf": [
        {
            "if": {"properties": {"type": {"const": kind}}},
            "then": {"required": [kind], "maxProperties": 2},
        }
        for kind in ("text", "image_url", "refusal")
    ],
}

_TOOL_CALL: Schema = _closed(
    {
        "id": _ID,
        "type": {"const": "function"},
        "function": _closed(
            # OpenAI's SDKs add parsed arguments, which are not forwarded.
            {"name": _NAME, "arguments": _TEXT, "parsed_arguments": {}},
            "name",
            "arguments",
        ),
        "index": {"type": "integer"},
    },
    "id",
    "type",
    "function",
)

_MESSAGE: Schema = {
    **_closed(
        {
            "role": {
                "type": "string",
                "enum": ["system", "developer", "user", "assistant", "tool"],
            },
            "content": {
                "type": ["string", "array", "null"],
                "items": _PART,
                "minItems": 1,
                "maxItems": 10_000,
            },
            "name": _or_null({"type": "string", "maxLength": 64}),
            "tool_calls": {
                "type": ["array", "null"],
                "items": _TOOL_CALL,
                "minItems": 1,
                "maxItems": 1_000,
            },
            "tool_call_id": _ID,
            "refusal": {"type": ["string", "null"]},
            # Callers may send an answer back unchanged; a provider does not read these members.
            "annotations": {"type": ["array", "null"]},
            "reasoning_content": {"type": ["string", "null"]},
            "reasoning": {"type": ["string", "null"]},
            "reasoning_details": {"type": ["array", "null"]},
            "provider_specific_fields": {"type": ["object", "null"]},
            "parsed": {},
            "audio": {"type": "null"},
            "function_call": {"type": "null"},
        },
        "role",
    ),
    "allOf": [
        {
            "if": {"properties": {"role": {"const": "tool"}}},
            "then": {"required": ["content", "tool_call_id"]},
        },
        {
            "if": {"properties": {"role": {"enum": ["system", "developer", "user"]}}},
            "then": {
                "required": ["content"],
                "properties": {"content": {"type": ["string", "array"]}},
            },
        },
    ],
}

_TOOL: Schema = _closed(
    {
        "type": {"const": "function"},
        "function": _closed(
            {"name": _NAME, "description": _TEXT, "parameters": _FREE, "strict": _FLAG}, "name"
        ),
    },
    "type",
    "function",
)

_RESPONSE_FORMAT: Schema = {
    **_closed(
        {
            "type": {"type": "string", "enum": ["text", "json_object", "json_schema"]},
            "json_schema": _closed(
                {"name": _NAME, "description": _TEXT, "schema": _FREE, "strict": _FLAG}, "name"
            ),
        },
        "type",
    ),
    "if": {"properties": {"type": {"const": "json_schema"}}},
    "then": {"required": ["json_schema"]},
}

CHAT_REQUEST: Schema = _closed(
    {
        "model": {"type": "string", "minLength": 1, "maxLength": 120},
        "messages": {"type": "array", "items": _MESSAGE, "minItems": 1, "maxItems": 10_000},
        "max_tokens": _LIMIT,
        "max_completion_tokens": _LIMIT,
        "temperature": _number(0, 2),
        "top_p": _number(0, 1),
        "stop": {"type": ["string", "array", "null"], "items": _TEXT, "maxItems": 4},
        "seed": {"type": ["integer", "null"]},
        "presence_penalty": _number(-2, 2),
        "frequency_penalty": _number(-2, 2),
        "logit_bias": {
            "type": ["object", "null"],
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        },
        "logprobs": _FLAG,
        "top_logprobs": {"type": ["integer", "null"], "minimum": 0, "maximum": 20},
        "response_format": _or_null(_RESPONSE_FORMAT),
        "tools": {"type": ["array", "null"], "items": _TOOL, "maxItems": 128},
        "tool_choice": {
            "type": ["string", "object", "null"],
            "if": {"type": "string"},
            "then": {"enum": ["none", "auto", "required"]},
            "properties": {
                "type": {"const": "function"},
                "function": _closed({"name": _NAME}, "name"),
            },
            "required": ["type", "function"],
            "additionalProperties": False,
        },
        "parallel_tool_calls": _FLAG,
        "reasoning_effort": {
            "type": ["string", "null"],
            "enum": ["none", "minimal", "low", "medium", "high", "xhigh", None],
        },
        "stream": _FLAG,
        "stream_options": _or_null(
            _closed(
                {"include_usage": {"type": "boolean"}, "include_obfuscation": {"type": "boolean"}}
            )
        ),
        "n": {"type": ["integer", "null"], "enum": [1, None]},
        "user": {"type": ["string", "null"]},
        "metadata": {"type": ["object", "null"]},
        "store": {"type": ["boolean", "null"], "enum": [False, None]},
    },
    "messages",
)
