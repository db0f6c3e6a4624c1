"""The faults of a member that may be one of several kinds of object."""

from typing import Any

import pytest

from config.platform.problems.problem import InvalidRequest
from llmproxy.requests.checking import RequestSchema


def kind(name: str, member: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"type": {"const": name}, member: {"type": "string"}},
        "required": ["type", member],
        "additionalProperties": False,
    }


EITHER = {"anyOf": [{"$ref": f"#/components/schemas/{each}"} for each in ("Text", "Image")]}
SCHEMA = RequestSchema(
    {"type": "object", "properties": {"parts": {"type": "array", "items": EITHER}}},
    {"Text": kind("text", "text"), "Image": kind("image", "url")},
    refusals={"/parts/*/type": "A part is a text or an image."},
)


@pytest.mark.parametrize(
    ("part", "where", "code"),
    [
        ({"type": "text"}, "/parts/0/text", "required"),
        ({"type": "image", "url": 1}, "/parts/0/url", "invalid"),
        ({"type": "audio", "url": "x"}, "/parts/0/type", "invalid"),
        ({"text": "x"}, "/parts/0/type", "required"),
        ("x", "/parts/0", "invalid"),
    ],
)
def test_a_fault_is_that_of_the_kind_that_is_named(part: Any, where: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SCHEMA.check({"parts": [part]})
    assert [(fault.pointer, fault.code) for fault in caught.value.errors] == [(where, code)]


def test_an_unknown_kind_says_why_it_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        SCHEMA.check({"parts": [{"type": "audio"}]})
    assert [fault.detail for fault in caught.value.errors] == ["A part is a text or an image."]


def test_a_member_of_another_kind_is_unknown() -> None:
    (fault,) = SCHEMA.check({"parts": [{"type": "text", "text": "x", "url": "y"}]})
    assert (fault.pointer, fault.code) == ("/parts/0/url", "unknown")


def test_an_unknown_member_of_null_is_absent() -> None:
    body = {"parts": [{"type": "text", "text": "x", "url": None}], "other": None}
    assert SCHEMA.check(body) == ()
    assert body == {"parts": [{"type": "text", "text": "x"}], "other": None}


def test_a_null_that_a_kind_needs_stays_whatever_kinds_there_are_beside_it() -> None:
    cited = {
        "type": "object",
        "properties": {"type": {"const": "text"}, "cited": {"type": ["string", "null"]}},
        "required": ["type", "cited"],
        "additionalProperties": False,
    }
    other = {**kind("", "url"), "properties": {"type": {"enum": ["image", "file"]}}}
    schema = RequestSchema(
        {"type": "object", "properties": {"part": {"anyOf": [cited, other]}}}, {}
    )
    body = {"part": {"type": "text", "cited": None, "unknown": None}}
    assert schema.check(body) == ()
    assert body == {"part": {"type": "text", "cited": None}}


def test_nulls_hide_no_other_fault() -> None:
    text = {"type": "text", "text": "x", "url": None}
    (fault,) = SCHEMA.check({"parts": [*([text] * 600), {**text, "other": 1}]})
    assert (fault.pointer, fault.code) == ("/parts/600/other", "unknown")


def test_a_large_body_tells_its_first_fault_and_stays_whole() -> None:
    well = {"type": "text", "text": "x"}
    body = {"parts": [*([well] * 2_000), *([{"type": "text"}] * 4_000)]}
    with pytest.raises(InvalidRequest) as caught:
        SCHEMA.check(body)
    assert [each.pointer for each in caught.value.errors] == ["/parts/2000/text"]
    assert len(body["parts"]) == 6_000
