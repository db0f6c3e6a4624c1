"""A few minutes of faults beside steady traffic: what may never happen does not; `make faults` tries all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.faults.invariants import INVARIANTS, LONGEST, WAIT, Watched, broken
from tests.faults.matrix import Outcome, run
from tests.faults.page import told, write
from tests.faults.scenarios import BY_NAME, SCENARIOS, SHORT
from tests.faults.stage import Stage, stage
from tests.faults.traffic import GOOD, SIGNED_OUT, Seen, Traffic

SEEN = Seen("status", 0.0, 0.1, 200, GOOD)


@pytest.fixture(scope="module")
def staged(
    django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Stage, Traffic]]:
    with stage(tmp_path_factory.mktemp("faults"), django_db_blocker.unblock) as made:
        yield made, Traffic(made)


@pytest.mark.wire
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SHORT)
def test_a_fault_breaks_nothing_that_may_never_break(
    staged: tuple[Stage, Traffic], name: str, tmp_path: Path
) -> None:
    made, traffic = staged
    outcome = run(made, BY_NAME[name], traffic)
    # A machine with much other work is slow by itself; `make faults` judges waits beside what it takes.
    assert outcome.broken.keys() <= {WAIT}, told(outcome)
    assert outcome.longest < 3 * LONGEST + outcome.delay, told(outcome)
    assert outcome.recovered is not None, told(outcome)
    assert outcome.drained is not None, told(outcome)
    write([outcome, Outcome(name="another", how="it", skipped="it is a test")], tmp_path)
    assert "it is a test" in (tmp_path / "faults.md").read_text()


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        ("a false 401", Seen("usage", 0.0, 0.1, 401, "access_revoked")),
        ("a false 401", Seen("console", 0.0, 0.1, 302, SIGNED_OUT)),
        ("a false suspension", Seen("complete", 0.0, 0.1, 403, "licence_suspended")),
        ("a false suspension", Seen("status", 0.0, 0.1, 200, "licence suspended")),
        ("a false suspension", Seen("stream", 0.0, 0.1, 200, "ended by licence_suspended")),
        (WAIT, Seen("status", 0.0, 15.2, 503, "service_unavailable")),
        ("a fault without a code", Seen("status", 0.0, 0.1, 500, "internal_error")),
    ],
)
def test_an_invariant_sees_what_breaks_it(rule: str, seen: Seen) -> None:
    def watched(*each: Seen) -> Watched:
        return Watched(
            seen=each,
            sums=(),
            delay=0.1,
            usual={},
            patience={},
            expired=frozenset({"access_token_expired"}),
        )

    assert broken(watched(SEEN)) == {}
    assert list(broken(watched(SEEN, seen))) == [rule]


def test_sums_that_differ_break_an_invariant() -> None:
    watched = Watched(
        seen=[], sums=["a row is lost"], delay=0.0, usual={}, patience={}, expired=frozenset()
    )
    assert broken(watched) == {"a row lost or doubled": ["a row is lost"]}
    assert len(INVARIANTS) == 5


def test_every_scenario_has_a_name_of_its_own_and_something_to_do() -> None:
    assert len(BY_NAME) == len(SCENARIOS)
    assert all((each.breaking is None) != (each.act is None) for each in SCENARIOS)
