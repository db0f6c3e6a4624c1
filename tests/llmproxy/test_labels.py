"""Labels kept of a caller's words for a call."""

from typing import Any

import pytest

from llmproxy.requests.labels import LONGEST_VALUE, MOST_PAIRS, labels_of


@pytest.mark.parametrize(
    "members", [{}, {"user": None, "metadata": None}, {"user": "", "metadata": {}}]
)
def test_a_call_without_labels_stores_none(members: dict[str, Any]) -> None:
    assert labels_of(members) is None


def test_user_and_metadata_are_kept() -> None:
    assert labels_of({"user": "seat-7"}) == {"user": "seat-7"}
    assert labels_of({"metadata": {"project": "moon", "run": 3, "dry": True}}) == {
        "metadata": {"project": "moon", "run": "3", "dry": "True"}
    }


def test_labels_beyond_openais_limits_are_not_stored() -> None:
    many = {f"n{index}": "v" for index in range(100)}
    kept = labels_of({"user": "u" * 10_000, "metadata": many | {"n0": "v" * 10_000}})
    assert kept is not None
    assert len(kept["user"]) == len(kept["metadata"]["n0"]) == LONGEST_VALUE
    assert len(kept["metadata"]) == MOST_PAIRS
    assert labels_of({"metadata": {"nested": {"a": 1}, "list": [1]}}) is None


def test_characters_that_no_row_can_hold_are_left_out() -> None:
    assert labels_of({"user": "a\0b\ud800"}) == {"user": "ab?"}
