"""No member, item, block, tool, value or beta of the locked SDKs goes unnoticed."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Required, TypedDict

import pytest

from config.platform.problems.problem import Fault, InvalidRequest
from llmproxy.requests import chat, messages, responses
from tests.supply import schemas

HELLO = [{"role": "user", "content": "hello"}]


def test_all_that_the_locked_sdks_may_send_is_classified(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert schemas.unclassified() == []
    assert schemas.main() == 0
    assert "classified" in capsys.readouterr().out


class Part(TypedDict, total=False):
    type: Required[Literal["text"]]
    text: str
    tone: str


class Film(TypedDict, total=False):
    type: Required[Literal["film"]]
    film: str


class Message(TypedDict, total=False):
    role: Required[Literal["user", "narrator"]]
    content: str | Iterable[Part | Film]
    mood: str | None


class Asked(TypedDict, total=False):
    messages: Required[Iterable[Message]]
    model: str
    seed: int
    stop: str | list[str]
    reasoning_effort: Literal["low", "endless"] | None
    ponder: bool


def test_members_that_an_upgrade_adds_are_listed_by_pointer() -> None:
    assert schemas.not_taken("chat", requests=[(Asked, "ChatRequest")]) == [
        "/ponder",
        "/reasoning_effort=endless",
        "/messages/*/mood",
        "/messages/*/role=narrator",
        "/messages/*/content/*/tone",
        "/messages/*/content/*[film]",
    ]


def test_a_line_that_is_about_nothing_is_listed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "betas_left_out", list)
    told = schemas.unclassified()
    assert told
    assert all(each.endswith("no SDK knows it, or it passes") for each in told)
    assert schemas.main() == 1


@pytest.mark.parametrize(
    ("surface", "members", "pointer", "why"),
    [
        ("chat", {"moderation": {"model": "m"}}, "/moderation", "does not report"),
        ("responses", {"input": [{"type": "web_search_call", "id": "x"}]}, "/input/0/type", "searches"),
        ("responses", {"input": [{"type": "compaction_trigger"}]}, "/input/0/type", "does not report"),
        ("messages", {"billing_policy": {"a": 1}}, "/billing_policy", "no budget here knows"),
        ("messages", {"workspace_id": "w"}, "/workspace_id", "This is a header"),
    ],
)  # fmt: skip
def test_a_refusal_says_the_reason(
    surface: str, members: dict[str, Any], pointer: str, why: str
) -> None:
    def told() -> Sequence[Fault]:
        match surface:
            case "chat":
                return chat.parse({"messages": HELLO, **members}, stream=False).unknown
            case "responses":
                return responses.parse({"input": "hello", **members}).unknown
        body = {"max_tokens": 9, "messages": HELLO, **members}
        return messages.parse(body, headers={}).unknown

    try:
        faults = told()
    except InvalidRequest as refused:
        faults = refused.errors
    [fault] = faults
    assert fault.pointer == pointer
    assert why in fault.detail
