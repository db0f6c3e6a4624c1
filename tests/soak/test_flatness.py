"""Flatness of known figures."""

from math import sin

from tests.soak.flatness import Bound, grown, slope, warmed

MEMORY = Bound(part=0.05, floor=4.0)


def test_a_leak_is_found_under_noise() -> None:
    leaking = [(float(at), 100 + 0.02 * at + 3 * sin(at)) for at in range(0, 1200, 5)]
    assert abs(slope(leaking) - 0.02) < 0.001
    assert not MEMORY.allows(leaking)


def test_noise_without_a_leak_is_flat() -> None:
    assert MEMORY.allows([(float(at), 100 + 3 * sin(at)) for at in range(0, 1200, 5)])


def test_a_falling_series_is_flat() -> None:
    assert MEMORY.allows([(float(at), 100 - 0.02 * at) for at in range(0, 1200, 5)])


def test_a_peak_is_no_slope() -> None:
    peak = [(float(at), 400.0 if 600 <= at < 660 else 100.0) for at in range(0, 1200, 5)]
    assert grown(peak) == 0.0


def test_a_series_that_grows_by_less_than_the_floor_is_flat() -> None:
    few = [(float(at), 10 + at / 600) for at in range(0, 1200, 5)]
    assert MEMORY.allows(few)
    assert not Bound(part=0.05, floor=1.0).allows(few)


def test_the_warming_of_each_process_is_left_out_from_its_own_beginning() -> None:
    later = [(float(at), 1.0) for at in range(600, 1200, 5)]
    assert warmed(later, until=1200)[0][0] == 780
    assert warmed([], until=1200) == []


def test_too_few_looks_have_no_slope() -> None:
    assert slope([(0.0, 1.0), (1.0, 100.0)]) == 0.0
