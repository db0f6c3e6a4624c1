"""The JSON Schema (2020-12) of a model call: the supported members of OpenAI's chat completion.

Requests are validated by the schema that is published, so the two cannot differ. Every object is closed except those
that hold a caller's schema or what a provider wants back as it was, so only members named here can reach a provider.
An optional member may be null. ``REFUSALS`` says of known members and values why they are refused.

``COMPONENTS`` are published by name, and refer to each other by :func:`ref`, so that generated clients have one type
for each. A new member goes into the component that holds it; an object that several places hold, or that a caller
builds on its own, is a component. What code generators need:

- An open object says so with ``OPEN``: they take a bare ``{"type": "object"}`` for an empty one.
- An array has ``items``, be it ``{}``.
- ``_or_null`` puts components and lists of words into ``anyOf``, and gives plain values a list of types. A value that
  is a word or an object is ``anyOf`` the two. The faults within keep their places (``llmproxy.requests.chat``).
- No member is ``null`` alone.
- ``only`` a value is a ``const``: no list of booleans.
- Conditions stand in ``if``/``then``/``else``, which generators pass over, and not in ``allOf``, which they do not.
"""

from llmproxy.requests.json_schema import (
    ANY_LIST,
    FLAG,
    ID,
    MODEL,
    OPEN,
    OPTIONAL_TEXT,
    PROMPT_CACHE_KEY,
    SAFETY_IDENTIFIER,
    TEXT,
    Schema,
    closed,
    number,
    one_of,
    only,
    ref,
    whole,
)
from llmproxy.requests.refused_members import REASONS


def _or_null(schema: Schema) -> Schema:
    if "$ref" in schema or "enum" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    kind = schema["type"]
    kinds = kind if isinstance(kind, list) else [kind]
    return {**schema, "type": [*kinds, "null"]}


def _by_kind(kind: str, *others: str, among: tuple[str, ...] = ()) -> Schema:
    """Holds an object of these types to the member of the name of its `type`; the others are absent or null."""
    kinds = among or (kind, *others)
    of_others: Schema = {each: {"not": _THERE} for each in kinds if each != kind}
    return {
        "if": {"properties": {"type": {"const": kind}}},
        "then": {
            "required": [kind],
            "properties": {kind: {"not": {"type": "null"}}, **of_others},
        },
        **({"else": _by_kind(*others, among=kinds)} if others else {}),
    }


_THERE: Schema = {
    "type": ["object", "array", "string", "integer"],
    "additionalProperties": True,
    "items": {},
}
# The sentence of a fault, by its place; ``*`` is any index.
REFUSALS: dict[tuple[str, ...], str] = {}


def _refused(place: str, why: str, schema: Schema | None = None) -> Schema:
    """A member that is known and refused, or taken with the values of this schema alone."""
    REFUSALS[tuple(place.split("."))] = why
    return {**(only(False) if schema is None else schema), "description": why}


# Servers of tools join names by dots, slashes and colons.
_NAME: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_.:/-]{1,128}$"}
_FREE: Schema = _or_null({**OPEN, "description": "A JSON Schema that the caller chooses."})
_BACK: Schema = _or_null({**OPEN, "description": "What the provider said, given back as it was."})
# Some programs say by 0 or -1 that they have no limit of their own.
_LIMIT: Schema = whole(-1, 2_147_483_647)
_CACHE: Schema = {
    **closed({"type": {"const": "ephemeral"}, "ttl": _or_null(one_of("5m"))}, "type"),
    "description": "The beginning of the prompt is cached up to here. Only providers of Anthropic's dialect read it.",
}
_BREAKPOINT: Schema = {
    **closed(
        {"mode": {"const": "explicit"}, "ttl": _or_null({"type": "string", "maxLength": 8})}, "mode"
    ),
    "description": "The beginning of the prompt is cached up to here, in OpenAI's words.",
}

_KINDS_OF_PARTS: Schema = {
    "text": TEXT,
    "refusal": TEXT,
    "image_url": closed(
        {
            "url": {
                "type": "string",
                "pattern": "^(https://|data:image/)",
                "description": "No literal address and no userinfo. `data:` alone where the provider is at a "
                "loopback or private address.",
            },
            "detail": _or_null(one_of("auto", "low", "high")),
        },
        "url",
    ),
    "input_audio": closed(
        {
            "data": {"type": "string", "minLength": 1, "description": "In base64."},
            "format": {"type": "string", "pattern": "^[a-z0-9]{2,16}$"},
        },
        "data",
        "format",
    ),
    "file": closed(
        {
            "file_data": {
                "type": "string",
                "pattern": "^(data:[A-Za-z0-9.+/-]{1,100};base64,|[A-Za-z0-9+/]{16})",
                "description": "The file in base64.",
            },
            "filename": _or_null({"type": "string", "maxLength": 256}),
            "file_id": _refused(
                "messages.*.content.*.file.file_id",
                "A file is sent whole, as file_data: everybody here shares the files of the provider's account.",
                _or_null({"type": "string", "maxLength": 0}),
            ),
        },
        "file_data",
    ),
    "thinking": {
        "type": ["array", "string"],
        "items": {},
        "description": "A part of an answer, given back as it was.",
    },
}
_PART: Schema = {
    **closed(
        {
            "type": one_of(*_KINDS_OF_PARTS),
            **{name: _or_null(schema) for name, schema in _KINDS_OF_PARTS.items()},
            "cache_control": _or_null(ref("CacheControl")),
            "prompt_cache_breakpoint": _or_null(ref("CacheBreakpoint")),
        },
        "type",
    ),
    "description": "A part of a message: its `type`, and the member of that name.",
    **_by_kind(*_KINDS_OF_PARTS),
}

_TOOL_CALL: Schema = {
    **closed(
        {
            "id": ID,
            "type": _or_null(one_of("function", "custom")),
            "function": _or_null(
                closed(
                    # SDKs and servers add what no provider reads.
                    {
                        "name": _NAME,
                        "arguments": OPTIONAL_TEXT,
                        "parsed_arguments": {},
                        "description": OPTIONAL_TEXT,
                        "provider_specific_fields": _or_null(OPEN),
                    },
                    "name",
                    "arguments",
                )
            ),
            "custom": _or_null(closed({"name": _NAME, "input": TEXT}, "name", "input")),
            "index": {"type": ["integer", "null"]},
            "provider_specific_fields": _or_null(OPEN),
            "extra_content": _BACK,
        },
        "id",
    ),
    "description": "A call of a tool; without a `type`, of a function.",
    "if": {"properties": {"type": {"const": "custom"}}, "required": ["type"]},
    "then": {"required": ["custom"], "properties": {"custom": {"not": {"type": "null"}}}},
    "else": {"required": ["function"], "properties": {"function": {"not": {"type": "null"}}}},
}

# Of an answer alone, and dropped like the others. From anybody else these would be lost without a word.
SAID: Schema = {
    "audio": _or_null(OPEN),
    "function_call": _or_null(OPEN),
    "thinking_blocks": ANY_LIST,
    "executed_tools": ANY_LIST,
    "citations": ANY_LIST,
    "images": ANY_LIST,
    "phase": OPTIONAL_TEXT,
    "token_id": {"type": ["integer", "null"]},
}
_UNSAID: Schema = {name: {"not": _THERE} for name in SAID}
REFUSALS.update(
    {("messages", "*", name): "Only what the model said has this member." for name in SAID}
)

_MESSAGE: Schema = {
    **closed(
        {
            "role": one_of("system", "developer", "user", "assistant", "tool"),
            "content": {
                "type": ["string", "array", "null"],
                "items": ref("ContentPart"),
                "maxItems": 10_000,
            },
            "name": _or_null({"type": "string", "maxLength": 64}),
            "tool_calls": {
                "type": ["array", "null"],
                "items": ref("ToolCall"),
                "maxItems": 1_000,
            },
            "tool_call_id": _or_null(ID),
            "refusal": OPTIONAL_TEXT,
            "cache_control": _or_null(ref("CacheControl")),
            # What a provider thought, which some need back beside the calls of tools.
            "reasoning_content": OPTIONAL_TEXT,
            "reasoning": OPTIONAL_TEXT,
            "reasoning_details": ANY_LIST,
            "extra_content": _BACK,
            # Callers may send an answer back unchanged; a provider does not read these members.
            "id": OPTIONAL_TEXT,
            "annotations": ANY_LIST,
            "provider_specific_fields": _or_null(OPEN),
            "parsed": {},
            **SAID,
        },
        "role",
    ),
    "if": {"properties": {"role": {"const": "tool"}}},
    "then": {
        "required": ["content", "tool_call_id"],
        "properties": {"tool_call_id": {"type": "string"}, **_UNSAID},
    },
    "else": {
        "if": {"properties": {"role": {"enum": ["system", "developer", "user"]}}},
        "then": {
            "required": ["content"],
            "properties": {
                "content": {"type": ["string", "array"], "items": {}, "minItems": 1},
                **_UNSAID,
            },
        },
    },
}

_TOOL: Schema = {
    **closed(
        {
            "type": _refused(
                "tools.*.type",
                "A tool is a function, or custom: what the provider runs itself costs money outside tokens.",
                one_of("function", "custom"),
            ),
            "function": _or_null(
                closed(
                    {
                        "name": _NAME,
                        "description": OPTIONAL_TEXT,
                        "parameters": _FREE,
                        "strict": FLAG,
                    },
                    "name",
                )
            ),
            "custom": _or_null(
                closed({"name": _NAME, "description": OPTIONAL_TEXT, "format": _FREE}, "name")
            ),
            "cache_control": _or_null(ref("CacheControl")),
        },
        "type",
    ),
    "description": "A tool: its `type`, and the member of that name.",
    **_by_kind("function", "custom"),
}
_TOOL_CHOICE: Schema = {
    **closed(
        {
            "type": one_of("function", "custom", "allowed_tools"),
            "function": closed({"name": _NAME}, "name"),
            "custom": closed({"name": _NAME}, "name"),
            "allowed_tools": closed(
                {
                    "mode": one_of("auto", "required"),
                    "tools": {"type": "array", "items": OPEN, "minItems": 1, "maxItems": 1_024},
                },
                "mode",
                "tools",
            ),
        },
        "type",
    ),
    "description": "A choice among the tools: its `type`, and the member of that name.",
    **_by_kind("function", "custom", "allowed_tools"),
}

_RESPONSE_FORMAT: Schema = {
    **closed(
        {
            "type": one_of("text", "json_object", "json_schema"),
            "json_schema": _or_null(
                closed(
                    {
                        "name": _NAME,
                        "description": OPTIONAL_TEXT,
                        "schema": _FREE,
                        "strict": FLAG,
                    },
                    "name",
                )
            ),
        },
        "type",
    ),
    "if": {"properties": {"type": {"const": "json_schema"}}},
    "then": {"required": ["json_schema"], "properties": {"json_schema": {"not": {"type": "null"}}}},
}
_PREDICTION: Schema = closed(
    {
        "type": {"const": "content"},
        "content": {
            "type": ["string", "array"],
            "items": closed({"type": {"const": "text"}, "text": TEXT}, "type", "text"),
            "minItems": 1,
            "maxItems": 10_000,
        },
    },
    "type",
    "content",
)

# Members that are taken as absent where they are null or false.
REFUSED = {
    **{
        name: REASONS[name]
        for name in ("audio", "web_search_options", "search_parameters", "enable_search", "plugins")
    },
    "functions": "OpenAI has replaced this member by tools.",
    "function_call": "OpenAI has replaced this member by tool_choice.",
}
_CHAT_REQUEST: Schema = closed(
    {
        "model": MODEL,
        "messages": {"type": "array", "items": ref("Message"), "minItems": 1, "maxItems": 10_000},
        "max_tokens": _LIMIT,
        "max_completion_tokens": _LIMIT,
        "temperature": number(0, 2),
        "top_p": number(0, 1),
        "stop": {"type": ["string", "array", "null"], "items": TEXT, "maxItems": 64},
        "seed": {"type": ["integer", "null"]},
        "presence_penalty": number(-2, 2),
        "frequency_penalty": number(-2, 2),
        "logit_bias": {
            "type": ["object", "null"],
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        },
        "logprobs": FLAG,
        "top_logprobs": whole(0, 20),
        "response_format": _or_null(ref("ResponseFormat")),
        "tools": {"type": ["array", "null"], "items": ref("Tool"), "maxItems": 1_024},
        "tool_choice": {
            "anyOf": [
                one_of("none", "auto", "required"),
                ref("ToolChoice"),
                {"type": "null"},
            ]
        },
        "parallel_tool_calls": FLAG,
        "reasoning_effort": _or_null(
            one_of("none", "minimal", "low", "medium", "high", "xhigh", "max")
        ),
        "verbosity": _or_null(one_of("low", "medium", "high")),
        "prediction": _or_null(ref("Prediction")),
        "prompt_cache_key": PROMPT_CACHE_KEY,
        "prompt_cache_retention": _or_null(one_of("in_memory", "in-memory", "24h")),
        "prompt_cache_options": _or_null(
            closed(
                {
                    "mode": _or_null(one_of("implicit", "explicit")),
                    "ttl": _or_null({"type": "string", "maxLength": 8}),
                }
            )
        ),
        "safety_identifier": SAFETY_IDENTIFIER,
        "service_tier": _refused(
            "service_tier",
            "This is auto or default: other tiers have prices of their own, which no budget here knows.",
            _or_null(one_of("auto", "default")),
        ),
        "modalities": _refused(
            "modalities.*",
            REASONS["modalities"],
            {"type": ["array", "null"], "items": {"const": "text"}, "maxItems": 8},
        ),
        "stream": FLAG,
        "stream_options": _or_null(closed({"include_usage": FLAG, "include_obfuscation": FLAG})),
        "n": _refused("n", REASONS["n"], only(1)),
        "user": OPTIONAL_TEXT,
        "metadata": _or_null(OPEN),
        "store": _refused(
            "store",
            "Nothing is stored at the provider, whose account everybody here shares.",
            only(False),
        ),
        **{name: _refused(name, why) for name, why in REFUSED.items()},
    },
    "messages",
)

COMPONENTS: Schema = {
    "ChatRequest": _CHAT_REQUEST,
    "Message": _MESSAGE,
    "ContentPart": _PART,
    "Tool": _TOOL,
    "ToolCall": _TOOL_CALL,
    "ToolChoice": _TOOL_CHOICE,
    "CacheControl": _CACHE,
    "CacheBreakpoint": _BREAKPOINT,
    "Prediction": _PREDICTION,
    "ResponseFormat": _RESPONSE_FORMAT,
}
CHAT_REQUEST: Schema = ref("ChatRequest")
