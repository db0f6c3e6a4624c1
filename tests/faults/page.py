"""Reports of the matrix: a line each while it runs, all figures as JSON, and a short page."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.report import circumstances
from tests.faults.invariants import INVARIANTS, WAIT
from tests.faults.matrix import Kind, Outcome
from tests.faults.sums import Sums
from tests.faults.traffic import GOOD


def told(outcome: Outcome) -> str:
    """A line, and one for each thing that may not be."""
    if outcome.skipped:
        return f"{outcome.name}: skipped, {outcome.skipped}"
    ill = ", ".join(f"{kind.name} {_outcomes(kind)}" for kind in outcome.affected)
    line = (
        f"{outcome.name}: longest wait {outcome.longest:.1f} s, well after {_seconds(outcome.recovered)}, "
        f"quiet after {_seconds(outcome.drained)}{' (hurried)' if outcome.is_hurried else ''}; "
        f"{ill or 'nobody noticed'}{f'; {outcome.said}' if outcome.said else ''} [{outcome.seconds:.0f} s]"
    )
    return "\n".join([line, *(f"  BROKEN {each}" for each in _broken(outcome))])


def as_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [asdict(outcome) for outcome in outcomes]


def from_json(kept: Sequence[dict[str, Any]]) -> list[Outcome]:
    """Reads the outcomes of an earlier run from :func:`as_json`."""
    return [
        Outcome(
            **{
                **each,
                "kinds": [Kind(**kind) for kind in each["kinds"]],
                "before": each["before"] and Sums(**each["before"]),
                "after": each["after"] and Sums(**each["after"]),
            }
        )
        for each in kept
    ]


def write(outcomes: Sequence[Outcome], folder: Path) -> None:
    """``faults.md``, over the one before."""
    (folder / "faults.md").write_text("\n".join(_page(outcomes)) + "\n")


def _page(outcomes: Sequence[Outcome]) -> Iterator[str]:
    seconds = sum(outcome.seconds for outcome in outcomes)
    ran = [outcome for outcome in outcomes if not outcome.skipped]
    under = circumstances(rounds=1, seconds=seconds, load_before=os.getloadavg()[0])
    slowest = max(ran, key=lambda each: each.recovered or 0.0)
    yield "# Faults"
    yield ""
    yield (
        "`make faults` breaks what the service needs while fourteen kinds of requests go on, a few a second. "
        f"Seen on {under.at:%Y-%m-%d}: {len(ran)} scenarios in {seconds / 60:.0f} minutes on {under.cores} cores of "
        f"{under.processor}, which {under.load_before:.0f} other processes wanted too."
    )
    yield ""
    yield (
        "`.local/faults/outcomes.json` has what each kind of caller got, the middle and longest wait, the seconds "
        "after the fault until it was well, and the sums before and after; `tests/faults/scenarios.py` how each is "
        "broken and healed."
    )
    yield ""
    yield "| What may never happen | seen in |"
    yield "|---|---|"
    for name in INVARIANTS:
        where = [outcome.name for outcome in ran if name in outcome.broken]
        yield f"| {name} | {', '.join(where) or 'none'} |"
    yield ""
    late = [each for outcome in ran for each in outcome.broken.get(WAIT, [])]
    if late and all(each.endswith(GOOD) for each in late):
        yield "Each of those waits ended in what was asked for, late by the machine's other work."
        yield ""
    yield (
        "Waits are judged beside what the machine takes by itself. "
        f"The last to be well again was {slowest.name}, after {_seconds(slowest.recovered)} s. "
        "A whole answer waits for a silent provider as long as `LLM_READ_TIMEOUT` says (here 8 s), a publish two "
        "minutes. A mail whose worker dies after the mail server took it comes twice. With the clock an hour ahead, "
        "tokens and idle console sessions have ended."
    )
    if skipped := [
        f"{outcome.name} ({outcome.skipped})" for outcome in outcomes if outcome.skipped
    ]:
        yield ""
        yield f"Not tried: {', '.join(skipped)}."


def _outcomes(kind: Kind) -> str:
    return ", ".join(f"{number} {what}" for what, number in kind.outcomes.items())


def _broken(outcome: Outcome) -> list[str]:
    return [f"{name}: {'; '.join(each)}" for name, each in outcome.broken.items()]


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f}"
