"""A choice among tools in another API's form: it is taken for the one thing that it can mean."""

from typing import Any

import pytest

from config.platform.problems.problem import InvalidRequest
from llmproxy.requests import chat, messages, responses

HELLO = [{"role": "user", "content": "hello"}]
NAMED = {"type": "function", "function": {"name": "f"}}


def in_chat(choice: Any, **more: Any) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = {"messages": HELLO, "tools": tools, "tool_choice": choice, **more}
    return chat.parse(body, stream=False).members


def in_responses(choice: Any, **more: Any) -> dict[str, Any]:
    tools = [{"type": "function", "name": "f"}]
    return responses.parse(
        {"input": "hello", "tools": tools, "tool_choice": choice, **more}
    ).members


def in_messages(choice: Any, **more: Any) -> dict[str, Any]:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    body = {"messages": HELLO, "max_tokens": 9, "tools": tools, "tool_choice": choice, **more}
    return messages.parse(body, headers={}).members


@pytest.mark.parametrize(
    ("given", "mode", "at_anthropic"),
    [
        # Cursor's (BerriAI/litellm#12168).
        ({"type": "auto"}, "auto", "auto"),
        ({"type": "none"}, "none", "none"),
        ({"type": "required"}, "required", "any"),
        ({"type": "any"}, "required", "any"),
        ({"type": "auto", "name": None, "function": None}, "auto", "auto"),
        ("any", "required", "any"),
        ("auto", "auto", "auto"),
        ("required", "required", "any"),
    ],
)
def test_a_mode_is_one_in_the_words_of_any_api(given: Any, mode: str, at_anthropic: str) -> None:
    assert in_chat(given)["tool_choice"] == mode
    assert in_responses(given)["tool_choice"] == mode
    assert in_messages(given)["tool_choice"] == {"type": at_anthropic}


@pytest.mark.parametrize(
    "given",
    [
        {"type": "tool", "name": "f"},
        {"type": "function", "name": "f"},
        {"type": "function", "function": {"name": "f"}},
        {"function": {"name": "f"}},
        {"name": "f"},
        {"type": None, "name": "f"},
    ],
)
def test_a_tool_is_chosen_by_its_name_in_any_form(given: Any) -> None:
    assert in_chat(given)["tool_choice"] == NAMED
    assert in_responses(given)["tool_choice"] == {"type": "function", "name": "f"}
    assert in_messages(given)["tool_choice"] == {"type": "tool", "name": "f"}


def test_a_custom_tool_is_chosen_in_either_of_openais_forms() -> None:
    for given in ({"type": "custom", "name": "g"}, {"type": "custom", "custom": {"name": "g"}}):
        assert in_chat(given)["tool_choice"] == {"type": "custom", "custom": {"name": "g"}}
        assert in_responses(given)["tool_choice"] == {"type": "custom", "name": "g"}


def test_one_call_at_a_time_is_said_in_anthropics_words_too() -> None:
    given = {"type": "any", "disable_parallel_tool_use": True}
    assert in_messages(given)["tool_choice"] == given
    for members in (in_chat(given), in_responses(given)):
        assert (members["tool_choice"], members["parallel_tool_calls"]) == ("required", False)
    assert in_chat(given, parallel_tool_calls=True)["parallel_tool_calls"] is True


@pytest.mark.parametrize(
    "given",
    [
        "always", "", 5, True, [], ["auto"], {}, {"type": "hosted"}, {"type": ["auto"]}, {"type": "tool"},
        {"type": "tool", "name": 5}, {"type": "function", "function": "f"},
        {"name": "f", "function": {"name": "g"}}, {"type": "auto", "disable_parallel_tool_use": "yes"},
        {"type": "tool", "name": "a b"}, {"type": "web_search", "name": "f"},
    ],
)  # fmt: skip
def test_an_ambiguous_or_meaningless_choice_is_refused(given: Any) -> None:
    for read in (in_chat, in_responses, in_messages):
        with pytest.raises(InvalidRequest) as refused:
            read(given)
        assert refused.value.errors[0].pointer.startswith("/tool_choice")
