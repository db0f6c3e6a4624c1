"""Members that no dialect knows: they are refused, whatever they hold, but for what a model has said."""

import json
from typing import Any

import pytest

from config.platform.problems.problem import InvalidRequest
from llmproxy.calls import admission
from llmproxy.requests import chat, embeddings, messages, responses
from llmproxy.requests.call_request import CallRequest
from tests.llmproxy.targets import target

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
TOOL = {"type": "function", "function": {"name": "f"}}
ODD = {"type": "function", "function": {"name": ["a"]}}


def of_responses(item: dict[str, Any]) -> CallRequest:
    return responses.parse({"input": [item]})


@pytest.mark.parametrize("member", ["output", "content"])
def test_a_list_where_an_item_of_responses_has_none(member: str) -> None:
    with pytest.raises(InvalidRequest):
        admission.able_targets([target()], of_responses({**CALL, member: ["x"]}))


def test_the_answer_of_a_model_goes_back_with_members_that_nobody_knows() -> None:
    said = {"role": "assistant", "content": "Hi", "trace": {"a": 1}, "tool_calls": None}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}, "odd": 2}
    turns = [
        {"role": "user", "content": "hi"},
        said,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    asked: CallRequest = chat.parse({"messages": turns}, stream=False)
    assert admission.able_targets([target()], asked)
    sent = sent_of(asked, "openai")["messages"]
    assert sent[1]["trace"] == {"a": 1}
    assert sent[2]["tool_calls"][0]["odd"] == 2
    assert asked.prompt["unlisted"] == [{"trace": {"a": 1}}, {"odd": 2}]
    # Another dialect has no place for them.
    assert "trace" not in str(sent_of(asked, "anthropic"))

    block = {"type": "text", "text": "Hi", "odd": 1}
    body = {"max_tokens": 5, "messages": [turns[0], {"role": "assistant", "content": [block]}]}
    asked = messages.parse(body, headers={})
    assert admission.able_targets([target("anthropic")], asked)
    assert sent_of(asked, "anthropic")["messages"][1]["content"] == [block]

    asked = responses.parse({"input": [{**CALL, "odd": 1}, {"role": "user", "content": "hi"}]})
    assert admission.able_targets([target()], asked)
    assert sent_of(asked, "openai")["input"][0]["odd"] == 1


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"top_k": 5}, "/top_k"),
        ({"messages": [{"role": "user", "content": "hi", "odd": 1}]}, "/messages/0/odd"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "video"}], "odd": 1}]},
            "/messages/0/content/0/type",
        ),
    ],
)
def test_no_other_unknown_member_passes_beside_them(change: dict[str, Any], pointer: str) -> None:
    said = {"role": "assistant", "content": "Hi", "odd": 1}
    body = {"messages": [{"role": "user", "content": "hi"}, said], **change}
    with pytest.raises(InvalidRequest) as refused:
        admission.able_targets([target()], chat.parse(body, stream=False))
    assert pointer in [each.pointer for each in refused.value.errors]


def test_a_cache_that_a_model_has_not_said_stays_closed() -> None:
    cached = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "scope": "a"}}
    body = {"max_tokens": 5, "messages": [{"role": "assistant", "content": [cached]}]}
    with pytest.raises(InvalidRequest):
        admission.able_targets([target("anthropic")], messages.parse(body, headers={}))


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
INSIDE = "http://10.0.0.1/a"


@pytest.mark.parametrize(
    ("turn", "pointer"),
    [
        ({"role": "assistant", "content": "b", "videos": [{"video_url": {"url": INSIDE}}]}, "/messages/1/videos"),
        ({"role": "assistant", "content": [{"type": "text", "text": "b", "media": f" {INSIDE}"}]},
         "/messages/1/content/0/media"),
        ({"role": "user", "content": [{**PICTURE, "video_url": {"url": "HTTP:\\\\10.0.0.1"}}]},
         "/messages/1/content/0/video_url"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {**PICTURE["image_url"], "back": INSIDE}}]},
         "/messages/1/content/0/image_url/back"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_data": "A" * 16, "file_url": "s3://a/b"}}]},
         "/messages/1/content/0/file/file_url"),
    ],
)  # fmt: skip
def test_an_address_in_them_goes_to_no_provider_that_fetches_none(
    turn: dict[str, Any], pointer: str
) -> None:
    asked = chat.parse({"messages": [{"role": "user", "content": "hi"}, turn]}, stream=False)
    where = target()._replace(passes_all=True)
    with pytest.raises(InvalidRequest) as refused:
        admission.able_targets([where], asked)
    assert [(each.pointer, each.code) for each in refused.value.errors] == [(pointer, "data_only")]
    assert admission.able_targets([where._replace(fetches=True)], asked)


def test_an_address_in_an_option_of_a_server_is_refused_on_every_surface() -> None:
    odd = {"options": {"there": INSIDE}}
    said = [{"role": "user", "content": "hi"}]
    for asked in (
        chat.parse({"messages": said, **odd}, stream=False),
        responses.parse({"input": said, **odd}),
        embeddings.parse({"input": "hi", **odd}),
        messages.parse({"max_tokens": 5, "messages": said, **odd}, headers={}),
    ):
        name = "anthropic" if asked.surface == "messages" else "openai"
        with pytest.raises(InvalidRequest) as refused:
            admission.able_targets([target(name)._replace(passes_all=True)], asked)
        assert [each.pointer for each in refused.value.errors] == ["/options"]


def test_members_that_name_a_source_or_a_form_and_texts_that_speak_of_addresses_pass() -> None:
    at = "https://example.com/a"
    said = {
        "role": "assistant",
        "content": "b",
        "annotations": [{"type": "url_citation", "url_citation": {"url": at}}],
        "citations": [at],
        "images": [{"image_url": {"url": at}}],
        "provider_specific_fields": {"citations": [{"url": at}]},
        "reasoning_details": [{"type": "reasoning.text", "text": at}],
        "search_results": [{"title": "A", "url": at}],
        "trace": {
            "text": f"See {at}",
            "file": r"C:\a",
            "shown": "data:image/png;base64,iVBORw0KGgo=",
        },
    }
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    listed = {"messages": [{"role": "user", "content": "hi"}, said]}
    assert admission.able_targets([target()], chat.parse(listed, stream=False))
    opened = chat.parse({**listed, "guided_json": schema}, stream=False)
    assert admission.able_targets([target()._replace(passes_all=True)], opened)

    text = {
        "type": "output_text",
        "text": "b",
        "annotations": [{"type": "url_citation", "url": at}],
    }
    items = [{"role": "assistant", "content": [text], "odd": 1}, {"role": "user", "content": "hi"}]
    assert admission.able_targets([target()], responses.parse({"input": items}))


def of_server(option: Any) -> CallRequest:
    body = {"messages": [{"role": "user", "content": "hi"}], "options": option}
    return chat.parse(body, stream=False)


@pytest.mark.parametrize(
    "written",
    [
        *(f"{blank}{INSIDE}" for blank in ("\u00a0", "\u3000", "\u2028", "\u0085", "\ufeff", "\x1f \ufeff ")),
        *(f"<{name}{INSIDE}>" for name in ("", "URL:", " URL: ")),
        "ht\ntp:10.0.0.1/a", "http:\\\\10.0.0.1", "FILE:/etc/passwd", "s3:\\a\\b", "gopher://10.0.0.1/",
        # Text after a blank is a part of the path, or the host behind a name.
        f"{INSIDE} is what I mean", f"{INSIDE}? is this", "http://a b@10.0.0.1/", "http://a b\\@10.0.0.1/",
        "http:10.0.0.1",
    ],
)  # fmt: skip
def test_an_address_is_known_however_its_readers_take_it(written: str) -> None:
    for option in (written, [written], {"a": {"url": written}}):
        with pytest.raises(InvalidRequest) as refused:
            admission.able_targets([target()._replace(passes_all=True)], of_server(option))
        assert [each.pointer for each in refused.value.errors] == ["/options"]


@pytest.mark.parametrize(
    "option",
    [
        {"guided_choice": ["https://a.de", "https://b.de"]},
        {"guided_regex": "https://[a-z]+"},
        {"structured_outputs": {"regex": r"id:\d+", "choice": ["https://a.de"]}},
        {"stop_regex": r"end:\s", "stop": ["https://"], "pattern": r"end:\s"},
        {"json": {"$ref": "https://a.de/b", "enum": ["https://a.de"], "const": "https://a.de",
                  "default": "https://a.de", "examples": ["https://a.de"]}},
        {"documents": [{"title": "Docs", "text": "https://example.com says that X"}]},
        {"documents": [{"title": "Docs", "text": "https://example.com/a says that X"}]},
        ["https: is a scheme", "https://example.com says that X", "Note:/ and more", "Note:/"],
        # No reader takes it without the address that it stands in.
        "//10.0.0.1/a",
    ],
)  # fmt: skip
def test_options_that_no_server_fetches_pass(option: Any) -> None:
    assert admission.able_targets([target()._replace(passes_all=True)], of_server(option))


def test_a_source_is_one_in_what_a_model_has_said_alone() -> None:
    cited = {"sources": [{"url": INSIDE}], "search_results": [INSIDE]}
    own = {"role": "user", "content": "hi"}
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}
    schema["json_schema"] |= {"role": "assistant", **cited}
    where = target()._replace(passes_all=True)
    for asked in (
        chat.parse({"messages": [own], **cited}, stream=False),
        chat.parse({"messages": [{**own, **cited}]}, stream=False),
        chat.parse({"messages": [own], "response_format": schema}, stream=False),
        responses.parse({"input": [{**own, **cited}]}),
        responses.parse({"input": [own], **cited}),
        embeddings.parse({"input": "hi", **cited}),
    ):
        with pytest.raises(InvalidRequest):
            admission.able_targets([where], asked)
    said = {"role": "assistant", "content": "b", **cited}
    assert admission.able_targets([where], chat.parse({"messages": [own, said]}, stream=False))
    assert admission.able_targets([where], responses.parse({"input": [said, own]}))
    body = {"max_tokens": 5, "messages": [own, said]}
    anthropic = target("anthropic")._replace(passes_all=True)
    assert admission.able_targets([anthropic], messages.parse(body, headers={}))
    body["messages"] = [{**own, **cited}]
    with pytest.raises(InvalidRequest):
        admission.able_targets([anthropic], messages.parse(body, headers={}))


def test_audio_by_url_goes_where_images_by_url_go() -> None:
    def code(data: str, *, fetches: bool) -> str:
        part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
        body = {"messages": [{"role": "user", "content": [part]}]}
        where = target()._replace(fetches=fetches)
        try:
            able = admission.able_targets([where], chat.parse(body, stream=False))
        except InvalidRequest as refused:
            [fault] = refused.errors
            assert fault.pointer == "/messages/0/content/0/input_audio/data"
            return fault.code
        return "passes" * len(able)

    assert code("https://a.test/b.wav", fetches=True) == "passes"
    assert code("https://a.test/b.wav", fetches=False) == "data_only"
    assert code("https://10.0.0.1/b.wav", fetches=True) == "literal_address"
    assert code("UklGRiQAAABXQVZF", fetches=False) == "passes"


@pytest.mark.parametrize("data", [INSIDE, "//10.0.0.1/a.wav", "gopher://10.0.0.1/"])
def test_audio_is_data_or_a_secure_address(data: str) -> None:
    part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    with pytest.raises(InvalidRequest) as refused:
        chat.parse({"messages": [{"role": "user", "content": [part]}]}, stream=False)
    [fault] = refused.value.errors
    assert fault.pointer == "/messages/0/content/0/input_audio/data"


@pytest.mark.parametrize("head", ["", "data:;base64,", "data:audio/webm;codecs=opus;base64,"])
def test_audio_may_stand_in_a_data_url(head: str) -> None:
    audio = {"data": f"{head}UklGRiQAAABXQVZF", "format": "wav"}
    part = {"type": "input_audio", "input_audio": audio}
    assert chat.parse({"messages": [{"role": "user", "content": [part]}]}, stream=False)


def sent_of(asked: CallRequest, dialect: str) -> dict[str, Any]:
    where = target(dialect)
    outgoing = where.codec(asked.surface).outgoing(asked, target=where, output_limit=9)
    body: dict[str, Any] = json.loads(outgoing.body)
    return body


def test_an_address_of_another_shape_in_a_text() -> None:
    part = {"type": "input_text", "text": "hi", "image_url": {"url": "x"}}
    with pytest.raises(InvalidRequest):
        admission.able_targets([target()], of_responses({"role": "user", "content": [part]}))
    block = {"type": "text", "text": "x", "source": {}}
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": [block]}]}
    with pytest.raises(InvalidRequest):
        admission.able_targets([target("anthropic")], messages.parse(body, headers={}))


def test_a_name_of_an_allowed_tool_that_is_none() -> None:
    allowed = {"mode": "auto", "tools": [ODD]}
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [TOOL],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed},
    }
    asked = chat.parse(body, stream=False)
    assert admission.able_targets([target("anthropic")], asked)
