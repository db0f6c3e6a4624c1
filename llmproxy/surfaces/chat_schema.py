"""The JSON Schema (2020-12) of a model call: the supported members of OpenAI's chat completion.

Requests are validated by the schema that is published, so the two cannot differ. Every object is closed except those
that hold a caller's schema, so only members named here can reach a provider.

``COMPONENTS`` are published by name, and refer to each other by :func:`ref`, so that generated clients have one type
for each. A new member goes into the component that holds it; an object that several places hold, or that a caller
builds on its own, is a component. What code generators need:

- An open object says so with ``_OPEN``: they take a bare ``{"type": "object"}`` for an empty one.
- An array has ``items``, be it ``{}``.
- ``_or_null`` puts components and lists of words into ``anyOf``, and gives plain values a list of types. A value that
  is a word or an object is ``anyOf`` the two. The faults within keep their places (``llmproxy.surfaces.chat``).
- No member is ``null`` alone: ``_NOTHING`` is null or an empty object.
- ``only`` a value is a ``const``: no list of booleans.
- Conditions stand in ``if``/``then``/``else``, which generators pass over, and not in ``allOf``, which they do not.
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


def ref(name: str) -> Schema:
    """Refers to a component of the published schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: Schema) -> Schema:
    if "$ref" in schema or "enum" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    kind = schema["type"]
    kinds = kind if isinstance(kind, list) else [kind]
    return {**schema, "type": [*kinds, "null"]}


def only(value: bool | int) -> Schema:  # noqa: FBT001 - the value of the member
    """One value, or null."""
    return {"anyOf": [{"const": value}, {"type": "null"}]}


def _one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def _number(low: float, high: float) -> Schema:
    return {"type": ["number", "null"], "minimum": low, "maximum": high}


def _by_kind(kind: str, *others: str) -> Schema:
    """Holds an object of these types to its `type` and the member of that name."""
    return {
        "if": {"properties": {"type": {"const": kind}}},
        "then": {"required": [kind], "maxProperties": 2},
        **({"else": _by_kind(*others)} if others else {}),
    }


_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_ID: Schema = {"type": "string", "maxLength": 256}
_FLAG: Schema = {"type": ["boolean", "null"]}
_OPEN: Schema = {"type": "object", "additionalProperties": True}
_FREE: Schema = {**_OPEN, "description": "A JSON Schema that the caller chooses."}
_ANY_LIST: Schema = {"type": ["array", "null"], "items": {}}
_NOTHING: Schema = {**_or_null(_OPEN), "maxProperties": 0}
_LIMIT: Schema = {"type": ["integer", "null"], "minimum": 1, "maximum": 1_000_000}

_PART: Schema = {
    **_closed(
        {
            "type": _one_of("text", "image_url", "refusal"),
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
                    "detail": _one_of("auto", "low", "high"),
                },
                "url",
            ),
        },
        "type",
    ),
    "description": "A part of a message: its `type`, and the member of that name.",
    **_by_kind("text", "image_url", "refusal"),
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
            "role": _one_of("system", "developer", "user", "assistant", "tool"),
            "content": {
                "type": ["string", "array", "null"],
                "items": ref("ContentPart"),
                "minItems": 1,
                "maxItems": 10_000,
            },
            "name": _or_null({"type": "string", "maxLength": 64}),
            "tool_calls": {
                "type": ["array", "null"],
                "items": ref("ToolCall"),
                "minItems": 1,
                "maxItems": 1_000,
            },
            "tool_call_id": _ID,
            "refusal": {"type": ["string", "null"]},
            # Callers may send an answer back unchanged; a provider does not read these members.
            "annotations": _ANY_LIST,
            "reasoning_content": {"type": ["string", "null"]},
            "reasoning": {"type": ["string", "null"]},
            "reasoning_details": _ANY_LIST,
            "provider_specific_fields": _or_null(_OPEN),
            "parsed": {},
            "audio": _NOTHING,
            "function_call": _NOTHING,
        },
        "role",
    ),
    "if": {"properties": {"role": {"const": "tool"}}},
    "then": {"required": ["content", "tool_call_id"]},
    "else": {
        "if": {"properties": {"role": {"enum": ["system", "developer", "user"]}}},
        "then": {
            "required": ["content"],
            "properties": {"content": {"type": ["string", "array"], "items": {}}},
        },
    },
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
            "type": _one_of("text", "json_object", "json_schema"),
            "json_schema": _closed(
                {"name": _NAME, "description": _TEXT, "schema": _FREE, "strict": _FLAG}, "name"
            ),
        },
        "type",
    ),
    "if": {"properties": {"type": {"const": "json_schema"}}},
    "then": {"required": ["json_schema"]},
}

_NAMED_TOOL_CHOICE: Schema = _closed(
    {"type": {"const": "function"}, "function": _closed({"name": _NAME}, "name")},
    "type",
    "function",
)

_CHAT_REQUEST: Schema = _closed(
    {
        "model": {"type": "string", "minLength": 1, "maxLength": 120},
        "messages": {"type": "array", "items": ref("Message"), "minItems": 1, "maxItems": 10_000},
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
        "response_format": _or_null(ref("ResponseFormat")),
        "tools": {"type": ["array", "null"], "items": ref("Tool"), "maxItems": 128},
        "tool_choice": {
            "anyOf": [
                _one_of("none", "auto", "required"),
                ref("NamedToolChoice"),
                {"type": "null"},
            ]
        },
        "parallel_tool_calls": _FLAG,
        "reasoning_effort": _or_null(_one_of("none", "minimal", "low", "medium", "high", "xhigh")),
        "stream": _FLAG,
        "stream_options": _or_null(
            _closed(
                {"include_usage": {"type": "boolean"}, "include_obfuscation": {"type": "boolean"}}
            )
        ),
        "n": only(1),
        "user": {"type": ["string", "null"]},
        "metadata": _or_null(_OPEN),
        "store": only(False),
    },
    "messages",
)

COMPONENTS: Schema = {
    "ChatRequest": _CHAT_REQUEST,
    "Message": _MESSAGE,
    "ContentPart": _PART,
    "Tool": _TOOL,
    "ToolCall": _TOOL_CALL,
    "NamedToolChoice": _NAMED_TOOL_CHOICE,
    "ResponseFormat": _RESPONSE_FORMAT,
}
CHAT_REQUEST: Schema = ref("ChatRequest")
