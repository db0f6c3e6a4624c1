"""The JSON Schema (2020-12) of Anthropic's Messages API: the supported members of a request.

Requests are validated by the schema that is published. Every object is closed except those that hold a caller's schema,
the input of a tool or a citation given back. Blocks and tools are told apart by their `type`. ``REFUSALS`` says of
known members and values why they are refused.
"""

from llmproxy.requests.json_schema import (
    ANY_LIST,
    FLAG,
    ID,
    MODEL,
    OPEN,
    OPTIONAL_TEXT,
    TEXT,
    Schema,
    any_of,
    closed,
    list_of,
    number,
    one_of,
    only,
    or_null,
    ref,
    whole,
)
from llmproxy.requests.refused_members import REASONS

_SHARED = "This is sent whole: everybody here shares the files of the provider's account."
_NO_BLOCK = "No block of this kind is supported here."
_HOUR = "A cache that lives longer than five minutes has a price of its own, which no budget here knows."
_CONTENT = ("messages", "*", "content", "*")
# A member that is null alone has no type in some generated clients.
_NOTHING: Schema = {
    "type": ["array", "object", "null"],
    "items": {},
    "maxItems": 0,
    "additionalProperties": True,
    "maxProperties": 0,
}
# The sentence of a fault, by its place; ``*`` is any index.
REFUSALS: dict[tuple[str, ...], str] = {
    (*_CONTENT, "type"): _NO_BLOCK,
    (*_CONTENT, "content", "*", "type"): (
        "A tool's result holds texts, images, documents and search results, and a search result texts. All tools are "
        "sent whole, none by its name."
    ),
    ("messages", "*", "content", "*", "source", "type"): _SHARED,
    ("messages", "*", "content", "*", "content", "*", "source", "type"): _SHARED,
    ("tools", "*", "type"): (
        "A tool runs at the caller, and is its own or a known bash, memory or text editor: a computer is not supported "
        "here, and what the provider runs itself costs money outside tokens."
    ),
    **{
        (*place, "cache_control", "ttl"): _HOUR
        for place in ((), ("system", "*"), ("tools", "*"), _CONTENT, (*_CONTENT, "content", "*"))
    },
    ("context_management", "edits", "*", "type"): (
        "Tool uses and thinking can be cleared; a summary by the provider costs tokens that it does not report."
    ),
}


def _refused(name: str, why: str, schema: Schema | None = None) -> Schema:
    """A member that is known and refused, or taken with the values of this schema alone."""
    REFUSALS[name,] = why
    return {**(schema or _NOTHING), "description": why}


_CACHE: Schema = or_null(ref("MessagesCacheControl"))
_ADDRESS: Schema = {
    "type": "string",
    "pattern": "^https://",
    "description": "No literal address and no userinfo. None where the provider is at a loopback or private address.",
}
_BASE64: Schema = {"type": "string", "description": "In base64."}
_NAME: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_.:/-]{1,128}$"}
_CITES: Schema = or_null(closed({"enabled": FLAG}))
_CALLER: Schema = or_null(closed({"type": {"const": "direct"}}, "type"))


def _kind(kind: str, properties: Schema, *required: str) -> Schema:
    return closed({"type": {"const": kind}, **properties}, "type", *required)


def _union(*names: str) -> Schema:
    return any_of(*(ref(f"Messages{name}") for name in names))


_SOURCES: Schema = {
    "MessagesImageData": _kind(
        "base64",
        {
            "media_type": one_of("image/jpeg", "image/png", "image/gif", "image/webp"),
            "data": _BASE64,
        },
        "media_type",
        "data",
    ),
    "MessagesPdfData": _kind(
        "base64",
        {"media_type": {"const": "application/pdf"}, "data": _BASE64},
        "media_type",
        "data",
    ),
    "MessagesPlainText": _kind(
        "text", {"media_type": {"const": "text/plain"}, "data": TEXT}, "media_type", "data"
    ),
    "MessagesContentSource": _kind(
        "content",
        {"content": any_of(TEXT, list_of(_union("TextBlock", "ImageBlock")))},
        "content",
    ),
    "MessagesAddress": _kind("url", {"url": _ADDRESS}, "url"),
}
_BLOCKS: Schema = {
    "MessagesTextBlock": _kind(
        "text",
        # Citations of an answer go back as they came.
        {"text": TEXT, "citations": ANY_LIST, "cache_control": _CACHE},
        "text",
    ),
    "MessagesImageBlock": _kind(
        "image", {"source": _union("ImageData", "Address"), "cache_control": _CACHE}, "source"
    ),
    "MessagesDocumentBlock": _kind(
        "document",
        {
            "source": _union("PdfData", "PlainText", "ContentSource", "Address"),
            "title": OPTIONAL_TEXT,
            "context": OPTIONAL_TEXT,
            "citations": _CITES,
            "cache_control": _CACHE,
        },
        "source",
    ),
    "MessagesSearchResultBlock": _kind(
        "search_result",
        {
            "source": TEXT,
            "title": TEXT,
            "content": list_of(ref("MessagesTextBlock")),
            "citations": _CITES,
            "cache_control": _CACHE,
        },
        "source",
        "title",
        "content",
    ),
    "MessagesThinkingBlock": {
        **_kind("thinking", {"thinking": TEXT, "signature": TEXT}, "thinking", "signature"),
        "description": "Thinking of an answer, given back as it came.",
    },
    "MessagesRedactedThinkingBlock": _kind("redacted_thinking", {"data": TEXT}, "data"),
    "MessagesToolUseBlock": _kind(
        "tool_use",
        {"id": ID, "name": _NAME, "input": OPEN, "caller": _CALLER, "cache_control": _CACHE},
        "id",
        "name",
        "input",
    ),
    "MessagesToolResultBlock": _kind(
        "tool_result",
        {
            "tool_use_id": ID,
            "content": or_null(
                TEXT,
                list_of(_union("TextBlock", "ImageBlock", "DocumentBlock", "SearchResultBlock")),
            ),
            "is_error": FLAG,
            "cache_control": _CACHE,
        },
        "tool_use_id",
    ),
}
_BLOCK: Schema = any_of(*map(ref, _BLOCKS))
# What every tool may say besides its name.
_ANY_TOOL: Schema = {
    "cache_control": _CACHE,
    "strict": FLAG,
    "defer_loading": FLAG,
    "input_examples": {**ANY_LIST, "items": OPEN},
    "allowed_callers": {"type": ["array", "null"], "items": {"const": "direct"}},
}
_TOOLS: Schema = {
    "MessagesTool": closed(
        {
            "type": only("custom"),
            "name": _NAME,
            "description": OPTIONAL_TEXT,
            "input_schema": {**OPEN, "description": "A JSON Schema that the caller chooses."},
            "eager_input_streaming": FLAG,
            **_ANY_TOOL,
        },
        "name",
        "input_schema",
    ),
    "MessagesClientTool": {
        **closed(
            {
                "type": one_of(
                    *("bash_20241022", "bash_20250124", "memory_20250818"),
                    *("text_editor_20241022", "text_editor_20250124", "text_editor_20250429"),
                    "text_editor_20250728",
                ),
                "name": _NAME,
                "max_characters": whole(1, 10_000_000),
                **_ANY_TOOL,
            },
            "type",
            "name",
        ),
        "description": "A tool that Anthropic defines and the caller runs.",
    },
}
_SINGLE: Schema = {"disable_parallel_tool_use": FLAG}
_CHOICE: Schema = any_of(
    _kind("auto", _SINGLE),
    _kind("any", _SINGLE),
    _kind("tool", {"name": _NAME, **_SINGLE}, "name"),
    _kind("none", _SINGLE),
)
_DISPLAY: Schema = {"display": or_null(one_of("summarized", "omitted"))}
_THINKING: Schema = any_of(
    _kind(
        "enabled",
        {"budget_tokens": {"type": "integer", "minimum": 1_024}, **_DISPLAY},
        "budget_tokens",
    ),
    _kind("adaptive", _DISPLAY),
    _kind("between_tools", {}),
    _kind("disabled", {}),
)
_FORMAT: Schema = _kind("json_schema", {"schema": OPEN, "name": OPTIONAL_TEXT}, "schema")
_EDITS: Schema = {
    "MessagesClearToolUses": _kind(
        "clear_tool_uses_20250919",
        {
            "trigger": or_null(OPEN),
            "keep": or_null(OPEN),
            "clear_at_least": or_null(OPEN),
            "clear_tool_inputs": any_of(FLAG, list_of(TEXT)),
            "exclude_tools": or_null(list_of(TEXT)),
        },
    ),
    "MessagesClearThinking": _kind(
        "clear_thinking_20251015", {"keep": or_null(OPEN, {"const": "all"})}
    ),
}
_PROMPT: Schema = {
    "model": MODEL,
    # As many as a call may have values.
    "messages": list_of(ref("MessagesTurn"), least=1, most=100_000),
    "system": or_null(TEXT, list_of(ref("MessagesTextBlock"))),
    "tools": or_null(list_of(any_of(*map(ref, _TOOLS)), most=1_024)),
    "tool_choice": or_null(ref("MessagesToolChoice")),
    "thinking": or_null(ref("MessagesThinking")),
    "output_config": or_null(
        closed(
            {
                "effort": or_null(one_of("low", "medium", "high", "xhigh", "max")),
                "format": or_null(ref("MessagesFormat")),
            }
        )
    ),
    "output_format": or_null(ref("MessagesFormat")),
    "cache_control": _CACHE,
    "context_management": or_null(
        closed({"edits": or_null(list_of(any_of(*map(ref, _EDITS)), most=16))})
    ),
    "speed": _refused("speed", REASONS["speed"], only("standard")),
    **{
        name: _refused(name, REASONS[name])
        for name in ("mcp_servers", "container", "fallbacks", "compaction")
    },
}
COMPONENTS: Schema = {
    "MessagesRequest": closed(
        {
            **_PROMPT,
            "max_tokens": {"type": "integer", "minimum": 1, "maximum": 2_147_483_647},
            "stream": FLAG,
            "stop_sequences": or_null(list_of(TEXT, most=1_000)),
            "temperature": number(0, 1),
            "top_p": number(0, 1),
            "top_k": whole(0, 1_000_000),
            "metadata": or_null(closed({"user_id": {**OPTIONAL_TEXT, "maxLength": 1_024}})),
            "service_tier": _refused(
                "service_tier",
                "This is auto or standard_only: other tiers have prices of their own.",
                or_null(one_of("auto", "standard_only")),
            ),
            "inference_geo": _refused("inference_geo", REASONS["inference_geo"]),
        },
        "messages",
        "max_tokens",
    ),
    "MessagesCountRequest": closed(_PROMPT, "messages"),
    "MessagesTurn": closed(
        {
            "role": one_of("user", "assistant", "system"),
            "content": any_of(TEXT, list_of(_BLOCK)),
        },
        "role",
        "content",
    ),
    "MessagesCacheControl": closed(
        {
            "type": {"const": "ephemeral"},
            "ttl": {
                **only("5m"),
                "description": _HOUR,
            },
        },
        "type",
    ),
    "MessagesToolChoice": _CHOICE,
    "MessagesThinking": _THINKING,
    "MessagesFormat": _FORMAT,
    **_EDITS,
    **_SOURCES,
    **_BLOCKS,
    **_TOOLS,
}
MESSAGES_REQUEST: Schema = ref("MessagesRequest")
COUNT_REQUEST: Schema = ref("MessagesCountRequest")
