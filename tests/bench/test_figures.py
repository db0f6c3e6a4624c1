"""The bench's own arithmetic: ratios within a round, verdicts by the median, turns that alternate."""

import pytest

from tests.bench.figures import Line, Spread, in_turns, number, shown


def line(ours: list[float], reference: list[float] | None = None, **bounds: float) -> Line:
    return Line(
        part="p",
        goal="g",
        name="n",
        unit="u",
        ours=ours,
        reference=reference,
        against="r",
        **bounds,
    )


def test_a_spread_is_the_middle_the_least_and_the_most() -> None:
    assert Spread.of([3.0, 1.0, 8.0]) == Spread(median=3.0, least=1.0, most=8.0)
    assert Spread.of([1.0, 2.0]).median == 1.5


def test_ratios_are_taken_within_a_round() -> None:
    # Both were half as fast in the second round.
    assert line([60.0, 30.0], [100.0, 50.0]).ratios == [0.6, 0.6]
    assert line([60.0]).ratios is None


def test_a_reference_that_did_nothing_gives_no_ratio() -> None:
    assert line([60.0, 30.0], [100.0, 0.0]).ratios is None


def test_rounds_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        _ = line([60.0, 30.0], [100.0]).ratios


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([0.6, 0.7, 0.8], "met"),
        ([0.5, 0.7, 0.8], "met (2 of 3 rounds)"),
        ([0.5, 0.59, 0.8], "missed (1 of 3 rounds)"),
        ([0.5, 0.5, 0.5], "missed"),
    ],
)
def test_the_median_decides_and_disagreeing_rounds_are_reported(
    ours: list[float], verdict: str
) -> None:
    judged = line([100 * each for each in ours], [100.0, 100.0, 100.0], at_least=0.6)
    assert judged.verdict == verdict
    assert judged.is_met is verdict.startswith("met")


def test_the_bounds_are_for_the_figures_themselves_without_a_reference() -> None:
    assert line([1.9, 2.0], at_most=2.0).verdict == "met"
    assert line([2.1], at_most=2.0).verdict == "missed"
    assert line([5.0], at_least=4.0, at_most=6.0).verdict == "met"
    assert line([7.0], at_least=4.0, at_most=6.0).verdict == "missed"


def test_a_line_without_a_goal_is_not_judged() -> None:
    assert line([1.0]).verdict == ""
    assert line([1.0]).is_met is None


def test_the_order_of_turns_alternates() -> None:
    asked: list[str] = []
    ways = {name: (lambda name=name: asked.append(name) or len(asked)) for name in ("a", "b")}
    assert in_turns(ways, rounds=3) == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert "".join(asked) == "abbaab"


def test_figures_are_rounded_to_significant_places() -> None:
    assert [number(each) for each in (0.71428, 2.718, 12.34, 1540.4, 0.0)] == [
        "0.714",
        "2.72",
        "12.3",
        "1,540",
        "0.000",
    ]
    assert shown([1.0, 2.0, 3.0]) == "2.00 (1.00-3.00)"
    assert shown([2.0]) == "2.00"


def test_a_line_says_everything_on_one_line() -> None:
    told = line([60.0, 70.0, 80.0], [100.0, 100.0, 100.0], at_least=0.6).told()
    assert told == "n: 70.0 (60.0-80.0) u, r 100 (100-100), ratio 0.700 (0.600-0.800), met: g"
