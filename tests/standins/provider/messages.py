"""What a conversation must look like before the stand-in answers it."""

from typing import Any

from tests.standins.provider.checks import (
    a_name,
    a_string,
    an_array,
    an_object,
    invalid,
    missing,
    one_of,
    optional,
    required,
    wrong_type,
)
from tests.standins.provider.failures import ApiError

ROLES = ("system", "assistant", "user", "tool", "developer")
PARTS = {
    "user": ("text", "image_url"),
    "assistant": ("text", "refusal"),
}
IMAGES = ("https://", "http://", "data:image/")


def check_messages(messages: list[dict[str, Any]]) -> None:
    """Raise `ApiError` 400 unless all messages are well-formed and all tool calls answered."""
    if not messages:
        raise invalid(
            "messages",
            "Invalid 'messages': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead.",
            "empty_array",
        )
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        an_object(path, message)
        role = required(message, "role", f"{path}.role", one_of(*ROLES))
        _check_content(path, role, message)
        waiting = _check_turn(path, role, message, waiting)
    if waiting:
        raise _unanswered(f"messages[{len(messages) - 1}]", waiting)


def _check_content(path: str, role: str, message: dict[str, Any]) -> None:
    for name in ("name", "refusal", "tool_call_id"):
        optional(message, name, f"{path}.{name}", a_string)
    if message.get("tool_calls") and role != "assistant":
        raise invalid(
            f"{path}.tool_calls", "'tool_calls' is only allowed for role 'assistant'.", None
        )
    content = message.get("content")
    if content is None:
        if role == "assistant" and (message.get("tool_calls") or message.get("refusal")):
            return
        raise missing(f"{path}.content")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise wrong_type(f"{path}.content", content, "a string or array of objects")
    for index, part in enumerate(content):
        _check_part(f"{path}.content[{index}]", role, part)


def _check_part(path: str, role: str, part: dict[str, Any]) -> None:
    an_object(path, part)
    kind = required(part, "type", f"{path}.type", one_of(*PARTS.get(role, ("text",))))
    if kind != "image_url":
        required(part, kind, f"{path}.{kind}", a_string)
        return
    image = required(part, "image_url", f"{path}.image_url", an_object)
    address = required(image, "url", f"{path}.image_url.url", a_string)
    optional(image, "detail", f"{path}.image_url.detail", one_of("auto", "low", "high"))
    if not address.startswith(IMAGES):
        raise invalid(
            f"{path}.image_url.url",
            "Invalid image_url: expected an http(s) address or a base64 data URL of an image.",
            "invalid_image_url",
        )


def _check_turn(path: str, role: str, message: dict[str, Any], waiting: set[str]) -> set[str]:
    """The ids of tool calls that still wait for an answer after this message."""
    if role == "tool":
        answered = required(message, "tool_call_id", f"{path}.tool_call_id", a_string)
        if answered not in waiting:
            raise invalid(
                f"{path}.role",
                "Invalid parameter: messages with role 'tool' must be a response to a "
                "preceding message with 'tool_calls'.",
                None,
            )
        return waiting - {answered}
    if waiting:
        raise _unanswered(path, waiting)
    if role == "assistant":
        return _check_calls(f"{path}.tool_calls", message)
    return set()


def _check_calls(path: str, message: dict[str, Any]) -> set[str]:
    calls = optional(message, "tool_calls", path, an_array) or []
    for index, call in enumerate(calls):
        here = f"{path}[{index}]"
        an_object(here, call)
        required(call, "id", f"{here}.id", a_string)
        required(call, "type", f"{here}.type", one_of("function"))
        function = required(call, "function", f"{here}.function", an_object)
        required(function, "name", f"{here}.function.name", a_name)
        required(function, "arguments", f"{here}.function.arguments", a_string)
    return {call["id"] for call in calls}


def _unanswered(path: str, waiting: set[str]) -> ApiError:
    return invalid(
        path,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
        + ", ".join(sorted(waiting)),
        None,
    )
