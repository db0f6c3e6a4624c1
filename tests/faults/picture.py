"""A picture of the matrix, a row a scenario."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from tests.faults.invariants import LONGEST
from tests.faults.matrix import Outcome

WELL, REFUSED, LOST = "#2b6cb0", "#d69e2e", "#c05621"
ROW, WIDTH, EDGE = 0.26, 11.0, 1.2


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """A row a scenario: shares of what was asked meanwhile, the longest wait, and the time until all was well."""
    # Text stays text, and the same figures give the same file.
    mpl.rcParams |= {"svg.hashsalt": "faults", "svg.fonttype": "none"}
    figure, (shares, waits) = plt.subplots(
        1, 2, figsize=(WIDTH, ROW * len(outcomes) + EDGE), sharey=True, width_ratios=(3, 2)
    )
    places = range(len(outcomes))
    for place, outcome in zip(places, outcomes, strict=True):
        _shares(shares, place, outcome)
    shares.set_xlabel(
        "answered (blue), refused with a code (yellow), no answer (red), % of requests", fontsize=8
    )
    waits.barh([p - 0.2 for p in places], [o.longest for o in outcomes], 0.38, color=WELL)
    recovered = [outcome.recovered or 0.0 for outcome in outcomes]
    waits.barh([p + 0.2 for p in places], recovered, 0.38, color=REFUSED)
    waits.axvline(LONGEST, color="black", linewidth=0.8)
    waits.set_xlabel(
        "seconds: longest wait but for publishes (blue), until all was well (yellow)", fontsize=8
    )
    shares.set_yticks(list(places), [outcome.name for outcome in outcomes], fontsize=7)
    shares.invert_yaxis()
    for axes in (shares, waits):
        axes.margins(y=0.01)
        axes.tick_params(axis="x", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _shares(axes: Axes, place: int, outcome: Outcome) -> None:
    numbers = {WELL: 0, REFUSED: 0, LOST: 0}
    for kind in outcome.kinds:
        for what, number in kind.outcomes.items():
            lost = what.startswith("0 ")
            numbers[WELL if what == "ok" else LOST if lost else REFUSED] += number
    left, whole = 0.0, max(1, sum(numbers.values()))
    for color, number in numbers.items():
        width = 100 * number / whole
        axes.barh(place, width, 0.7, left=left, color=color)
        left += width
