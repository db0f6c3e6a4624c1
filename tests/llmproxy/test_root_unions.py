"""A tool whose schema is a union at its root: providers that take objects alone get one."""

import json
from typing import Any

import jsonschema_rs
import pytest

from config.platform.problems.problem import InvalidRequest
from llmproxy.dialects.root_unions import UNIONS, NoObject, folded
from llmproxy.requests import chat, messages, responses
from tests.llmproxy.targets import target

HELLO = [{"role": "user", "content": "hello"}]
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
BY_NAME = {"type": "object", "properties": {"name": TEXT, "of": TEXT}, "required": ["name", "of"]}
BY_ID = {"type": "object", "properties": {"id": NUMBER, "of": NUMBER}, "required": ["id", "of"]}
EITHER: dict[str, Any] = {"anyOf": [BY_NAME, BY_ID]}


@pytest.mark.parametrize("name", UNIONS)
def test_a_union_of_objects_is_an_object_with_all_their_members(name: str) -> None:
    form = folded({name: [BY_NAME, BY_ID]})
    assert form["type"] == "object"
    assert form["properties"] == {"name": TEXT, "id": NUMBER, "of": {"anyOf": [TEXT, NUMBER]}}
    assert form["required"] == (["id", "name", "of"] if name == "allOf" else ["of"])
    assert not form.keys() & set(UNIONS)


# anomalyco/opencode#35516, dearlordylord/huly-mcp#66, marianfoo/mcp-sap-docs#51
@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        (EITHER, [{"name": "a", "of": "b"}, {"id": 1, "of": 2}]),
        ({"type": "object", "properties": {"route": TEXT, "file": TEXT},
          "anyOf": [{"required": ["route"]}, {"required": ["file"]}]}, [{"route": "a"}, {"file": "b"}]),
        ({"type": "object", "required": ["of"], "properties": {"of": TEXT},
          "allOf": [{"properties": {"a": NUMBER}}, {"required": ["a"]}]}, [{"of": "x", "a": 1}]),
        ({"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "$defs": {"A": BY_NAME, "B": BY_ID}},
         [{"name": "a", "of": "b"}, {"id": 1, "of": 2}]),
        ({"anyOf": [{"anyOf": [BY_NAME, {"allOf": [BY_ID]}]}, {"type": "null"}]}, [{"id": 1, "of": 2}]),
        ({"anyOf": [BY_NAME]}, [{"name": "a", "of": "b"}]),
    ],
)  # fmt: skip
def test_every_input_of_the_union_fits_the_object(schema: Any, fits: list[Any]) -> None:
    form = folded(schema)
    for given in fits:
        assert jsonschema_rs.is_valid(schema, given)
        assert jsonschema_rs.is_valid(form, given)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [BY_NAME, TEXT]}, {"anyOf": "x"}, {"oneOf": [{"type": "array"}]}, {"anyOf": [True]},
        {"anyOf": [{"$ref": "#/$defs/none"}]}, {"anyOf": [{"$ref": "https://a.test/b"}]},
        {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}, "anyOf": [{"$ref": "#/$defs/A"}]},
        {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 30}}, "anyOf": [{"$ref": "#/$defs/A"}] * 30},
        {"$defs": {"A": {"anyOf": [BY_NAME] * 100}}, "anyOf": [{"$ref": "#/$defs/A"}] * 100},
        {"anyOf": [{"properties": [1]}]}, {"anyOf": [{"required": {"a": 1}}]},
    ],
)  # fmt: skip
def test_a_schema_that_is_no_object_is_refused_at_the_pointer_of_its_tool(schema: Any) -> None:
    with pytest.raises(NoObject):
        folded(schema)
    tools: list[Any] = [{"name": "g", "input_schema": {}}, {"name": "f", "input_schema": schema}]
    body = {"max_tokens": 9, "messages": HELLO, "tools": tools}
    functions = [
        {"type": "function", "function": {"name": each["name"], "parameters": each["input_schema"]}}
        for each in tools
    ]
    for request, pointer in (
        (messages.parse(body, headers={}), "/tools/1/input_schema"),
        (
            chat.parse({"messages": HELLO, "tools": functions}, stream=False),
            "/tools/1/function/parameters",
        ),
    ):
        with pytest.raises(InvalidRequest) as refused:
            target("anthropic").check(request)
        assert [(each.pointer, each.code) for each in refused.value.errors] == [
            (pointer, "unsupported")
        ]


def test_each_provider_gets_the_form_that_it_takes() -> None:
    function = {"name": "f", "parameters": EITHER}
    in_chat = {"messages": HELLO, "tools": [{"type": "function", "function": function}]}
    asked = chat.parse(in_chat, stream=False)
    in_responses = responses.parse({"input": "hi", "tools": [{"type": "function", **function}]})
    body = {"max_tokens": 9, "messages": HELLO, "tools": [{"name": "f", "input_schema": EITHER}]}
    in_messages = messages.parse(body, headers={})

    def sent(request: Any, dialect: str, **where: Any) -> Any:
        at = target(dialect)._replace(**where)
        outgoing = at.codec(request.surface).outgoing(request, target=at, output_limit=9)
        return json.loads(outgoing.body)["tools"][0]

    form = folded(EITHER)
    openais = {"base_url": "https://api.openai.com/v1"}
    assert sent(asked, "anthropic")["input_schema"] == form
    assert sent(in_messages, "anthropic")["input_schema"] == form
    assert sent(asked, "openai", **openais)["function"]["parameters"] == form
    assert sent(in_responses, "openai", **openais)["parameters"] == form
    # Other servers take it as it is.
    assert sent(asked, "openai")["function"]["parameters"] == EITHER
    assert sent(in_responses, "openai")["parameters"] == EITHER


# chenyme/grok2api#766, openclaw/openclaw#106464
@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (["object", "null"], {"properties": {"name": TEXT}}), (["null", "object"], {"properties": {}}),
        (["object"], {"required": ["name"], "properties": {"name": TEXT}}), ("null", {}), (None, {}),
        (["object", "null"], {"anyOf": [BY_NAME, {"type": "null"}]}),
    ],
)  # fmt: skip
def test_a_root_that_may_be_null_is_an_object(kind: Any, parts: Any) -> None:
    schema = {"type": kind, **parts}
    form = folded(schema)
    assert form["type"] == "object"
    assert form.get("properties", {}).keys() <= {"name", "of"}
    assert form == folded(form)
    tool = {"name": "f", "input_schema": schema}
    body = {"max_tokens": 9, "messages": HELLO, "tools": [tool]}
    function = {"type": "function", "function": {"name": "f", "parameters": schema}}
    for request in (
        messages.parse(body, headers={}),
        chat.parse({"messages": HELLO, "tools": [function]}, stream=False),
    ):
        to = target("anthropic")
        to.check(request)
        codec = to.codec(request.surface)
        sent = json.loads(codec.outgoing(request, target=to, output_limit=9).body)
        assert sent["tools"][0]["input_schema"] == form


@pytest.mark.parametrize(
    "kind", ["string", ["object", "string"], ["null", "array"], [["object"]], 1]
)
def test_a_root_of_another_type_stays_for_its_provider_to_refuse(kind: Any) -> None:
    assert folded({"type": kind}) == {"type": kind}
    with pytest.raises(NoObject):
        folded({"type": kind, "anyOf": [BY_NAME]})
