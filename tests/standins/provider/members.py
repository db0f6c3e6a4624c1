"""The members of a chat-completions request, one by one: which there are, and what they mean."""

from typing import Any

from tests.standins.provider.checks import (
    Check,
    a_boolean,
    a_name,
    a_string,
    an_array,
    an_object,
    anything,
    decimal,
    integer,
    invalid,
    one_of,
    optional,
    required,
    wrong_type,
)
from tests.standins.provider.tokens import text_of

MOST_STOPS = 4
MEMBERS: dict[str, Check] = {
    "frequency_penalty": decimal(-2, 2),
    "logit_bias": an_object,
    "logprobs": a_boolean,
    "max_completion_tokens": integer(1),
    "max_tokens": integer(1),
    "messages": an_array,
    "metadata": an_object,
    "model": a_string,
    "n": integer(1, 1),
    "parallel_tool_calls": a_boolean,
    "prediction": an_object,
    "presence_penalty": decimal(-2, 2),
    "prompt_cache_key": a_string,
    "reasoning_effort": one_of("none", "minimal", "low", "medium", "high", "xhigh"),
    "response_format": an_object,
    "safety_identifier": a_string,
    "seed": integer(-(2**63), 2**63 - 1),
    "service_tier": a_string,
    "stop": anything,
    "store": a_boolean,
    "stream": a_boolean,
    "stream_options": an_object,
    "temperature": decimal(0, 2),
    "tool_choice": anything,
    "tools": an_array,
    "top_logprobs": integer(0, 20),
    "top_p": decimal(0, 1),
    "user": a_string,
    "verbosity": one_of("low", "medium", "high"),
}


def received_limit(body: dict[str, Any]) -> Any:
    """The output limit that a body asks for, as it stands there."""
    limit = body.get("max_completion_tokens")
    return body.get("max_tokens") if limit is None else limit


def read_limit(body: dict[str, Any]) -> int | None:
    """How many tokens the answer may have."""
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        raise invalid(
            "max_tokens",
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            "invalid_parameter_combination",
        )
    limit: int | None = received_limit(body)
    return limit


def read_stops(stop: object) -> tuple[str, ...]:
    """The texts that end the answer, without being part of it."""
    stops = [stop] if isinstance(stop, str) else stop
    if stops is None:
        return ()
    if not isinstance(stops, list) or not all(isinstance(item, str) for item in stops):
        raise wrong_type("stop", stop, "a string or an array of strings")
    if len(stops) > MOST_STOPS:
        raise invalid(
            "stop",
            "Invalid 'stop': array too long. Expected an array with maximum length 4, "
            f"but got an array with length {len(stops)} instead.",
            "array_above_max_length",
        )
    return tuple(item for item in stops if item)


def read_tools(body: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The tools on offer."""
    tools = body.get("tools")
    if tools is None:
        return ()
    if not tools:
        raise invalid("tools", "Invalid 'tools': empty array.", "empty_array")
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        an_object(path, tool)
        required(tool, "type", f"{path}.type", one_of("function"))
        function = required(tool, "function", f"{path}.function", an_object)
        required(function, "name", f"{path}.function.name", a_name)
        optional(function, "description", f"{path}.function.description", a_string)
        optional(function, "parameters", f"{path}.function.parameters", an_object)
        optional(function, "strict", f"{path}.function.strict", a_boolean)
    return tuple(tools)


def read_tool_choice(body: dict[str, Any], tools: tuple[dict[str, Any], ...]) -> str:
    """Either "none", "auto", "required" or the name of the tool to call."""
    choice = body.get("tool_choice")
    if choice is None:
        return "auto"
    if not tools:
        raise invalid(
            "tool_choice", "'tool_choice' is only allowed when 'tools' are specified.", None
        )
    if isinstance(choice, str):
        one_of("none", "auto", "required")("tool_choice", choice)
        return choice
    an_object("tool_choice", choice)
    required(choice, "type", "tool_choice.type", one_of("function"))
    function = required(choice, "function", "tool_choice.function", an_object)
    name = required(function, "name", "tool_choice.function.name", a_name)
    if all(tool["function"]["name"] != name for tool in tools):
        raise invalid("tool_choice", f"Tool choice '{name}' not found in 'tools' parameter.", None)
    return str(name)


def read_format(
    body: dict[str, Any], messages: list[dict[str, Any]]
) -> tuple[bool, dict[str, Any] | None]:
    """Whether any JSON object is wanted, and the schema where one is given."""
    wanted = body.get("response_format")
    if wanted is None:
        return False, None
    kinds = one_of("text", "json_object", "json_schema")
    kind = required(wanted, "type", "response_format.type", kinds)
    if kind == "json_schema":
        path = "response_format.json_schema"
        described = required(wanted, "json_schema", path, an_object)
        required(described, "name", f"{path}.name", a_name)
        optional(described, "strict", f"{path}.strict", a_boolean)
        return False, required(described, "schema", f"{path}.schema", an_object)
    if kind == "json_object" and not any("json" in text_of(item).lower() for item in messages):
        raise invalid(
            "messages",
            "'messages' must contain the word 'json' in some form, to use 'response_format' of "
            "type 'json_object'.",
            None,
        )
    return kind == "json_object", None


def read_stream_options(body: dict[str, Any]) -> dict[str, Any]:
    """The options of a stream, empty without any."""
    options: dict[str, Any] = body.get("stream_options") or {}
    if body.get("stream_options") is not None and not body.get("stream"):
        raise invalid(
            "stream_options",
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            None,
        )
    for name in options:
        path = f"stream_options.{name}"
        if name not in {"include_usage", "include_obfuscation"}:
            raise invalid(path, f"Unknown parameter: '{path}'.", "unknown_parameter")
        optional(options, name, path, a_boolean)
    return options


def read_logprobs(body: dict[str, Any]) -> int | None:
    """How many alternatives to give for each token; None for no log probabilities at all."""
    if body.get("logprobs"):
        return body.get("top_logprobs") or 0
    if body.get("top_logprobs"):
        raise invalid(
            "top_logprobs",
            "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
            None,
        )
    return None
