"""Limits of events: every one at its edge."""

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from telemetry.events import PROPERTIES_BYTES, BadEvent
from tests.telemetry.reports import NOON, event, read


def fault(given: Any) -> tuple[str, str]:
    """Pointer and code of what is wrong with an event."""
    with pytest.raises(BadEvent) as bad:
        read(given)
    assert bad.value.fault.detail.endswith(".")
    return bad.value.fault.pointer, bad.value.fault.code


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"in": value}
    return value


def sized(total: int) -> dict[str, str]:
    """Properties that take so many bytes."""
    return {"text": "a b " * ((total - 11) // 4) + "." * ((total - 11) % 4)}


def test_a_whole_event_is_read() -> None:
    given = event(id="0B5C6F9E-6C5E-4DB1-9A3B-0D1F8F0F2E11", unknown=[1])
    kept = read(given)
    assert kept.id == "0b5c6f9e-6c5e-4db1-9a3b-0d1f8f0f2e11"
    assert kept[1:] == (
        "document.opened",
        "2026-11-20T11:59:00Z",
        "sheets",
        "1.2.3",
        '{"ms":12}',
    )


@pytest.mark.parametrize("absent", [..., None])
def test_optional_members_may_be_absent_or_null(absent: Any) -> None:
    kept = read(event(app=absent, shell_version=absent, properties=absent))
    assert (kept.app, kept.shell_version, kept.properties) == ("", "", "{}")


@pytest.mark.parametrize("given", [None, 1, "event", [], True])
def test_an_event_is_an_object(given: Any) -> None:
    assert fault(given) == ("", "invalid")


@pytest.mark.parametrize("member", ["id", "name", "occurred_at"])
@pytest.mark.parametrize("absent", [..., None])
def test_required_members_must_be_present(member: str, absent: Any) -> None:
    assert fault(event(**{member: absent})) == (f"/{member}", "required")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("id", "0b5c6f9e6c5e4db19a3b0d1f8f0f2e11"),
        ("id", "{0b5c6f9e-6c5e-4db1-9a3b-0d1f8f0f2e11}"),
        ("id", "0b5c6f9e-6c5e-4db1-9a3b-0d1f8f0f2e11\n"),
        ("id", 7),
        ("name", ""),
        ("name", "n" * 101),
        ("name", " begins with a space"),
        ("name", "a\0b"),
        ("name", "half \ud800"),
        ("name", {"a": 1}),
        ("app", "a" * 61),
        ("app", "-sheets"),
        ("app", ""),
        ("app", "tab\tbed"),
        ("app", 3),
        ("shell_version", "v" * 65),
        ("shell_version", "=1.2.3"),
        ("shell_version", "1.2.3\n"),
        ("shell_version", "１.2"),
        ("shell_version", 1.2),
        ("properties", []),
        ("properties", "{}"),
        ("occurred_at", 1763640000),
        ("occurred_at", "2026-11-20"),
        ("occurred_at", "2026-11-20T11:59:00"),
        ("occurred_at", "2026-11-20 11:59:00Z"),
        ("occurred_at", "20261120T115900Z"),
        ("occurred_at", "2026-11-31T11:59:00Z"),
        ("occurred_at", "2026-11-20T24:61:00Z"),
        ("occurred_at", "2026-11-20T11:59:00+99:00"),
        ("occurred_at", "2026-11-20T11:59:00+00:60"),
        ("occurred_at", "2026-11-20T11:59:00-00:99"),
        ("occurred_at", "0000-11-20T11:59:00Z"),
        ("occurred_at", "２026-11-20T11:59:00Z"),
    ],
)
def test_a_malformed_member_is_refused(member: str, value: Any) -> None:
    assert fault(event(**{member: value})) == (f"/{member}", "invalid")


@pytest.mark.parametrize(
    "at", ["2016-12-31T23:59:60Z", "2026-11-20T11:59:60.5Z", "2026-11-20t11:59:60+00:00"]
)
def test_a_leap_second_is_refused_for_what_it_is(at: str) -> None:
    with pytest.raises(BadEvent) as refused:
        read(event(occurred_at=at))
    assert "leap second" in refused.value.fault.detail


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("name", "n" * 100),
        ("name", "Order Completed"),
        ("name", "$screen"),
        ("app", "a" * 60),
        ("shell_version", "v" * 64),
        ("shell_version", "1.2.3-rc.1+build.5"),
    ],
)
def test_the_longest_and_the_unusual_are_taken(member: str, value: str) -> None:
    assert getattr(read(event(**{member: value})), member) == value


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-20T11:59:00.123456789Z",
        "2026-11-20t11:59:00z",
        "2026-11-20T13:59:00+02:00",
        "2026-11-21T11:58:00+23:59",
    ],
)
def test_every_way_to_write_an_instant_is_read(written: str) -> None:
    at = datetime.fromisoformat(read(event(occurred_at=written)).occurred_at)
    assert at.replace(microsecond=0) == NOON - timedelta(minutes=1)


@pytest.mark.parametrize(
    ("after", "code"),
    [
        (-timedelta(days=30), None),
        (-timedelta(days=30, microseconds=1), "too_old"),
        (timedelta(hours=1), None),
        (timedelta(hours=1, microseconds=1), "too_new"),
    ],
)
def test_an_event_may_be_a_month_old_and_an_hour_ahead(after: timedelta, code: str | None) -> None:
    at = NOON + after
    if code:
        assert fault(event(occurred_at=at.isoformat())) == ("/occurred_at", code)
    else:
        assert read(event(occurred_at=at.isoformat())).occurred_at == at.isoformat()


@pytest.mark.parametrize(
    ("written", "code"),
    [("0001-01-01T00:00:00+23:59", "too_old"), ("9999-12-31T23:59:59-23:59", "too_new")],
)
def test_the_ends_of_time_are_no_error_of_ours(written: str, code: str) -> None:
    assert fault(event(occurred_at=written)) == ("/occurred_at", code)


def test_properties_may_be_as_large_as_said_and_no_larger() -> None:
    assert len(read(event(properties=sized(PROPERTIES_BYTES))).properties) == 16 * 1024
    too_large = ("/properties", "too_large")
    assert fault(event(properties=sized(PROPERTIES_BYTES + 1))) == too_large


def test_the_size_of_properties_is_that_of_their_bytes() -> None:
    assert fault(event(properties={"text": "ä" * (8 * 1024)})) == ("/properties", "too_large")
    assert read(event(properties={"text": "ä" * (8 * 1024 - 6)}))


def test_properties_may_be_as_deep_as_said_and_no_deeper() -> None:
    assert read(event(properties=nested(5))).properties.count("{") == 5
    assert fault(event(properties=nested(6))) == ("/properties/in/in/in/in/in", "too_deep")
    deep = ("/properties/a/0/0/0/0", "too_deep")
    assert fault(event(properties={"a": [[[[[]]]]]})) == deep


def test_many_values_beside_each_other_are_not_deep() -> None:
    assert read(event(properties={"points": [{"x": [1]} for _ in range(200)]}))


@pytest.mark.parametrize(
    ("properties", "pointer"),
    [
        ({"a": {"b/c": ["", "x\0"]}}, "/properties/a/b~1c/1"),
        ({"a": {"b~": "\ud83d"}}, "/properties/a/b~0"),
        ({"a": {"\udc00": 1}}, "/properties/a"),
        ({"x\0": 1}, "/properties"),
    ],
)
def test_texts_that_no_column_can_hold_are_refused(
    properties: dict[str, Any], pointer: str
) -> None:
    assert fault(event(properties=properties)) == (pointer, "invalid_characters")


def test_a_text_about_escapes_is_no_such_text() -> None:
    said = read(event(properties={"text": "\\u0000 and \\ud800"})).properties
    assert said == r'{"text":"\\u0000 and \\ud800"}'


@pytest.mark.parametrize(
    "properties",
    [
        {"a": None, "b": [True, False, 0, -0.0, 1e16, 1e-7, 1.5, 2**63, 10**30, -(2**70)]},
        {"a": "null", "b": "\x1f\x7f\u2028 ä 😀", "ä": {"": [[], {}]}},
        {"a": 1e308, "b": 5e-324, "c": 0.1 + 0.2},
    ],
)
def test_properties_are_kept_as_they_came(properties: dict[str, Any]) -> None:
    assert json.loads(read(event(properties=properties)).properties) == properties


def test_a_fault_repeats_no_long_name() -> None:
    name = "k" * 8000
    at, code = fault(event(properties={name: {"a": [0, float("inf")]}}))
    assert (at, code) == (f"/properties/{name[:99]}…/a/1", "out_of_range")


def test_a_number_that_no_float_can_hold_is_refused() -> None:
    given = {"a": [1, float("inf")]}
    assert fault(event(properties=given)) == ("/properties/a/1", "out_of_range")
    assert fault(event(properties={"a": -float("inf")})) == ("/properties/a", "out_of_range")
    assert read(event(properties={"a": "Infinity", "b": 1e308, "c": 10**300}))


@pytest.mark.parametrize("separator", ["\n", ""])
def test_several_ids_in_one_are_no_ids(separator: str) -> None:
    assert fault(event(id=f"{uuid4()}{separator}{uuid4()}")) == ("/id", "invalid")


def test_the_clock_is_the_callers() -> None:
    later = datetime(2027, 3, 1, tzinfo=NOON.tzinfo)
    with pytest.raises(BadEvent):
        read(event(), now=later)
