"""The JSON Schema (2020-12) of OpenAI's Responses API without state: the supported members of a request.

Requests are validated by the schema that is published. Every object is closed except those that hold a caller's schema
or what a provider wants back as it was. Items and tools are told apart by their `type`.
"""

from llmproxy.requests.json_schema import (
    ANY_LIST,
    FLAG,
    ID,
    MODEL,
    NONE,
    OPEN,
    OPTIONAL_ID,
    OPTIONAL_TEXT,
    PROMPT_CACHE_KEY,
    SAFETY_IDENTIFIER,
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

# The least that OpenAI takes, and the least that admission grants.
LEAST_OUTPUT = 16

_NAME: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_.:/-]{1,128}$"}
_STATUS: Schema = or_null(one_of("in_progress", "completed", "incomplete", "failed"))
_PHASE: Schema = or_null(one_of("commentary", "final_answer"))
_DETAIL: Schema = or_null(one_of("auto", "low", "high", "original"))
_IMAGE: Schema = {
    "type": "string",
    "pattern": "^(https://|data:image/)",
    "description": "No literal address and no userinfo. `data:` alone where the provider is at a loopback or private "
    "address.",
}
_BREAKPOINT: Schema = or_null(
    closed({"mode": {"const": "explicit"}, "ttl": {"type": ["string", "null"], "maxLength": 8}})
)
_SCHEMA: Schema = {**OPEN, "description": "A JSON Schema that the caller chooses."}
# The parts of what the model said, given back, and of its reasoning.
_PARTS: Schema = any_of(
    ref("ResponseInputText"), ref("ResponseInputImage"), ref("ResponseInputFile")
)
_OUTPUT: Schema = any_of(TEXT, list_of(_PARTS))


def _item(kind: str, properties: Schema, *required: str) -> Schema:
    given = {"type": {"const": kind}, "id": OPTIONAL_ID, "status": _STATUS}
    return closed({**given, **properties}, "type", *required)


# Who called a tool: the model itself. A program that the provider runs is refused with its tool.
_CALLER: Schema = {"async": FLAG, "caller": or_null(closed({"type": {"const": "direct"}}, "type"))}
_CALL: Schema = {"call_id": ID, "name": _NAME, "namespace": OPTIONAL_TEXT, **_CALLER}
_RESULT: Schema = {"call_id": ID, "output": _OUTPUT, "name": or_null(_NAME), **_CALLER}
_BY: Schema = {**_CALLER, "created_by": OPTIONAL_TEXT}
_ITEMS: Schema = {
    "ResponseMessage": {
        **closed(
            {
                "type": only("message"),
                "id": OPTIONAL_ID,
                "role": one_of("user", "assistant", "system", "developer"),
                "content": any_of(
                    TEXT,
                    list_of(
                        any_of(
                            ref("ResponseInputText"),
                            ref("ResponseInputImage"),
                            ref("ResponseInputFile"),
                            ref("ResponseOutputText"),
                            ref("ResponseRefusal"),
                        )
                    ),
                ),
                "status": _STATUS,
                "phase": _PHASE,
            },
            "role",
            "content",
        ),
        "description": "A message; one without `type` is a message too.",
    },
    "ResponseFunctionCall": _item(
        "function_call",
        # OpenAI's SDKs add what they have parsed, which is not forwarded.
        {**_CALL, "arguments": TEXT, "parsed_arguments": {}},
        "call_id",
        "name",
        "arguments",
    ),
    "ResponseFunctionCallOutput": _item("function_call_output", _RESULT, "call_id", "output"),
    "ResponseCustomToolCall": _item(
        "custom_tool_call", {**_CALL, "input": TEXT}, "call_id", "name", "input"
    ),
    "ResponseCustomToolCallOutput": _item("custom_tool_call_output", _RESULT, "call_id", "output"),
    # Tools that OpenAI defines and the caller runs.
    "ResponseLocalShellCall": _item(
        "local_shell_call",
        {"call_id": ID, "action": ref("ResponseLocalShellAction"), **_BY},
        "call_id",
        "action",
    ),
    "ResponseLocalShellCallOutput": _item(
        "local_shell_call_output", {"call_id": OPTIONAL_ID, "output": TEXT, **_BY}, "output"
    ),
    "ResponseShellCall": _item(
        "shell_call",
        {
            "call_id": ID,
            "action": ref("ResponseShellAction"),
            "environment": or_null(ref("ResponseLocalEnvironment")),
            **_BY,
        },
        "call_id",
        "action",
    ),
    "ResponseShellCallOutput": _item(
        "shell_call_output",
        {
            "call_id": ID,
            "output": list_of(ref("ResponseShellOutput")),
            "max_output_length": {"type": ["integer", "null"]},
            **_BY,
        },
        "call_id",
        "output",
    ),
    "ResponseApplyPatchCall": _item(
        "apply_patch_call",
        {"call_id": ID, "operation": ref("ResponsePatchOperation"), **_BY},
        "call_id",
        "operation",
    ),
    "ResponseApplyPatchCallOutput": _item(
        "apply_patch_call_output", {"call_id": ID, "output": OPTIONAL_TEXT, **_BY}, "call_id"
    ),
    "ResponseReasoning": {
        **_item(
            "reasoning",
            {
                "summary": or_null(list_of(ref("ResponseReasoningText"))),
                "content": or_null(list_of(ref("ResponseReasoningText"))),
                "encrypted_content": OPTIONAL_TEXT,
            },
        ),
        "description": "Reasoning given back. One with neither content nor encrypted content says nothing to a "
        'provider without state, and is left out: ask for `include: ["reasoning.encrypted_content"]`.',
    },
}
_ITEM: Schema = any_of(*map(ref, _ITEMS))

_LOADING: Schema = {
    "defer_loading": FLAG,
    "allowed_callers": or_null(list_of(one_of("direct"), most=8)),
}
_TOOLS: Schema = {
    "ResponseFunctionTool": closed(
        {
            "type": {"const": "function"},
            "name": _NAME,
            "description": OPTIONAL_TEXT,
            "parameters": or_null(_SCHEMA),
            "output_schema": or_null(_SCHEMA),
            "strict": FLAG,
            **_LOADING,
        },
        "type",
        "name",
    ),
    "ResponseCustomTool": closed(
        {
            "type": {"const": "custom"},
            "name": _NAME,
            "description": OPTIONAL_TEXT,
            "format": or_null(
                closed(
                    {
                        "type": one_of("text", "grammar"),
                        "syntax": or_null(one_of("lark", "regex")),
                        "definition": OPTIONAL_TEXT,
                    },
                    "type",
                )
            ),
            **_LOADING,
        },
        "type",
        "name",
    ),
}
_OWN_TOOLS: Schema = {
    "ResponseLocalShellTool": closed({"type": {"const": "local_shell"}}, "type"),
    "ResponseShellTool": closed(
        {
            "type": {"const": "shell"},
            "environment": ref("ResponseLocalEnvironment"),
            "allowed_callers": _LOADING["allowed_callers"],
        },
        "type",
        "environment",
    ),
    "ResponseApplyPatchTool": closed(
        {"type": {"const": "apply_patch"}, "allowed_callers": _LOADING["allowed_callers"]}, "type"
    ),
}
_TOOLS["ResponseNamespaceTool"] = closed(
    {
        "type": {"const": "namespace"},
        "name": _NAME,
        "description": OPTIONAL_TEXT,
        "tools": list_of(any_of(*map(ref, _TOOLS)), most=1_000),
    },
    "type",
    "name",
    "tools",
)
_TOOLS |= _OWN_TOOLS
_TOOL: Schema = any_of(*map(ref, _TOOLS))
_CHOICES: Schema = {
    "ResponseChosenFunction": closed(
        {"type": {"const": "function"}, "name": _NAME}, "type", "name"
    ),
    "ResponseChosenTool": closed({"type": {"const": "custom"}, "name": _NAME}, "type", "name"),
    "ResponseChosenOwnTool": closed(
        {"type": one_of("local_shell", "shell", "apply_patch")}, "type"
    ),
}
_NAMED: Schema = any_of(*map(ref, _CHOICES))

_FORMATS: Schema = {
    "ResponseTextFormat": closed({"type": {"const": "text"}}, "type"),
    "ResponseJsonFormat": closed({"type": {"const": "json_object"}}, "type"),
    "ResponseSchemaFormat": closed(
        {
            "type": {"const": "json_schema"},
            "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
            "schema": _SCHEMA,
            "description": OPTIONAL_TEXT,
            "strict": FLAG,
        },
        "type",
        "name",
        "schema",
    ),
}

_REQUEST: Schema = closed(
    {
        "model": MODEL,
        "input": any_of(TEXT, list_of(_ITEM, least=1)),
        "instructions": OPTIONAL_TEXT,
        "max_output_tokens": whole(LEAST_OUTPUT, 2_147_483_647),
        "tools": or_null(list_of(_TOOL, most=1_000)),
        "tool_choice": or_null(
            one_of("none", "auto", "required"), *map(ref, _CHOICES), ref("ResponseAllowedTools")
        ),
        "parallel_tool_calls": FLAG,
        "max_tool_calls": whole(1, 1_000),
        "reasoning": or_null(ref("ResponseReasoningOptions")),
        "text": or_null(
            closed(
                {
                    "format": or_null(*map(ref, _FORMATS)),
                    "verbosity": or_null(one_of("low", "medium", "high")),
                }
            )
        ),
        "include": or_null(
            list_of(
                one_of(
                    "reasoning.encrypted_content",
                    "message.output_text.logprobs",
                    "message.input_image.image_url",
                    "file_search_call.results",
                    "web_search_call.results",
                    "web_search_call.action.sources",
                    "computer_call_output.output.image_url",
                    "code_interpreter_call.outputs",
                )
            )
        ),
        "temperature": number(0, 2),
        "top_p": number(0, 1),
        "top_logprobs": whole(0, 20),
        "truncation": or_null(one_of("auto", "disabled")),
        "prompt_cache_key": PROMPT_CACHE_KEY,
        "prompt_cache_retention": or_null(one_of("in_memory", "in-memory", "24h")),
        "prompt_cache_options": or_null(
            closed(
                {
                    "mode": or_null(one_of("implicit", "explicit")),
                    "ttl": {"type": ["string", "null"], "maxLength": 8},
                }
            )
        ),
        "safety_identifier": SAFETY_IDENTIFIER,
        "service_tier": or_null(one_of("auto", "default")),
        "stream": FLAG,
        "stream_options": or_null(closed({"include_obfuscation": FLAG})),
        "metadata": or_null(OPEN),
        "client_metadata": {**or_null(OPEN), "description": "Codex's; not passed on."},
        "user": OPTIONAL_TEXT,
        "store": {**only(False), "description": "Nothing is stored; absent counts as false."},
        "background": only(False),
        "previous_response_id": NONE,
        "conversation": NONE,
        "prompt": NONE,
    },
    "input",
)

COMPONENTS: Schema = {
    "ResponsesRequest": _REQUEST,
    **_ITEMS,
    **_TOOLS,
    **_CHOICES,
    **_FORMATS,
    "ResponseLocalEnvironment": closed(
        {"type": {"const": "local"}, "skills": or_null(list_of(ref("ResponseSkill"), most=1_000))},
        "type",
    ),
    "ResponseSkill": closed(
        {"name": TEXT, "description": TEXT, "path": TEXT}, "name", "description", "path"
    ),
    "ResponseLocalShellAction": closed(
        {
            "type": {"const": "exec"},
            "command": list_of(TEXT),
            "env": OPEN,
            "timeout_ms": {"type": ["integer", "null"]},
            "user": OPTIONAL_TEXT,
            "working_directory": OPTIONAL_TEXT,
        },
        "type",
        "command",
    ),
    "ResponseShellAction": closed(
        {
            "commands": list_of(TEXT),
            "timeout_ms": {"type": ["integer", "null"]},
            "max_output_length": {"type": ["integer", "null"]},
        },
        "commands",
    ),
    "ResponseShellOutput": closed(
        {
            "stdout": TEXT,
            "stderr": TEXT,
            "outcome": ref("ResponseShellOutcome"),
            "created_by": OPTIONAL_TEXT,
        },
        "stdout",
        "stderr",
        "outcome",
    ),
    "ResponseShellOutcome": closed(
        {"type": one_of("exit", "timeout"), "exit_code": {"type": ["integer", "null"]}}, "type"
    ),
    "ResponsePatchOperation": closed(
        {
            "type": one_of("create_file", "update_file", "delete_file"),
            "path": TEXT,
            "diff": OPTIONAL_TEXT,
        },
        "type",
        "path",
    ),
    "ResponseInputText": closed(
        {"type": {"const": "input_text"}, "text": TEXT, "prompt_cache_breakpoint": _BREAKPOINT},
        "type",
        "text",
    ),
    "ResponseInputImage": closed(
        {
            "type": {"const": "input_image"},
            "image_url": _IMAGE,
            "detail": _DETAIL,
            "file_id": NONE,
            "prompt_cache_breakpoint": _BREAKPOINT,
        },
        "type",
        "image_url",
    ),
    "ResponseInputFile": closed(
        {
            "type": {"const": "input_file"},
            "file_data": {
                "type": "string",
                "pattern": "^(data:[A-Za-z0-9.+/-]{1,100};base64,|[A-Za-z0-9+/]{16})",
                "description": "The file in base64.",
            },
            "filename": {"type": ["string", "null"], "maxLength": 256},
            "file_id": NONE,
            "file_url": NONE,
            "prompt_cache_breakpoint": _BREAKPOINT,
        },
        "type",
        "file_data",
    ),
    "ResponseOutputText": closed(
        {
            "type": {"const": "output_text"},
            "text": TEXT,
            "annotations": ANY_LIST,
            "logprobs": ANY_LIST,
            # OpenAI's SDKs add what they have parsed, which is not forwarded.
            "parsed": {},
        },
        "type",
        "text",
    ),
    "ResponseRefusal": closed(
        {"type": {"const": "refusal"}, "refusal": TEXT, "parsed": {}}, "type", "refusal"
    ),
    "ResponseReasoningText": closed(
        {"type": one_of("summary_text", "reasoning_text", "text"), "text": TEXT}, "type", "text"
    ),
    "ResponseReasoningOptions": closed(
        {
            "effort": or_null(one_of("none", "minimal", "low", "medium", "high", "xhigh", "max")),
            "summary": or_null(one_of("auto", "concise", "detailed", "none")),
            "generate_summary": or_null(one_of("auto", "concise", "detailed")),
            "context": or_null(one_of("auto", "current_turn", "all_turns")),
            # The other mode has several models think.
            "mode": only("standard"),
        }
    ),
    "ResponseAllowedTools": closed(
        {
            "type": {"const": "allowed_tools"},
            "mode": one_of("auto", "required"),
            "tools": list_of(_NAMED, least=1, most=1_000),
        },
        "type",
        "mode",
        "tools",
    ),
}
RESPONSES_REQUEST: Schema = ref("ResponsesRequest")

# The sentence of a fault, by its place.
REFUSALS: dict[tuple[str, ...], str] = {
    ("tools", "*", "environment", "type"): (
        "A shell is local, at the caller: a container of the provider costs more than tokens."
    ),
    (
        "service_tier",
    ): "This is auto or default: other tiers have prices of their own, which no budget here knows.",
    ("reasoning", "mode"): "This is standard: in other modes a call costs as much as several.",
    (
        "tool_choice",
        "type",
    ): "A choice is of a tool that the caller runs, or of allowed_tools.",
    **{
        ("input", "*", place, "*", name): why
        for place in ("content", "output")
        for name, why in {
            "file_id": "A file is sent whole, as file_data or image_url: everybody here shares the files of the "
            "provider's account.",
            "file_url": "A file is sent whole, as file_data: what a provider fetches has no size to count.",
        }.items()
    },
}
