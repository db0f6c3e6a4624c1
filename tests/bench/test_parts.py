"""Command line of the bench."""

from importlib.util import find_spec

import pytest

from tests.bench.__main__ import PARTS, ROUNDS, _parser


def test_all_parts_are_measured_in_three_rounds_without_a_name() -> None:
    options = _parser().parse_args([])
    assert (options.parts, options.rounds) == ([], ROUNDS)


def test_parts_are_measured_by_name() -> None:
    options = _parser().parse_args(["--rounds", "1", "status", "auth"])
    assert (options.parts, options.rounds) == (["status", "auth"], 1)


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args(["speed"])


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_there(part: str) -> None:
    assert find_spec(f"tests.bench.{part}") is not None
