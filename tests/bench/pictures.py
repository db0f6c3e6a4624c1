"""Pictures of what was measured: how far each goal is, and each part's figures beside the reference's."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from tests.bench.figures import Line, Spread, number

OURS, REFERENCE, MISSED = "#2b6cb0", "#a0aec0", "#c05621"
WIDTH, ROW, EDGE = 10.0, 0.42, 1.1
# Where the largest figure of a unit is so many times the least, bars are drawn to powers of ten.
FAR_APART = 50


def draw(lines: Sequence[Line], folder: Path) -> list[str]:
    """Writes ``goals.png`` and ``<part>.png`` in place of all before; the names of those it has written."""
    for left in folder.glob("*.png"):
        left.unlink()
    drawn = []
    if margins := [(line, margin) for line in lines if (margin := margin_of(line)) is not None]:
        _goals(margins, folder / "goals.png")
        drawn.append("goals")
    for part, group in groupby(lines, key=lambda line: line.part):
        _part(list(group), folder / f"{part}.png")
        drawn.append(part)
    return drawn


def margin_of(line: Line) -> float | None:
    """How many times better than asked the median is, below 1 where it is worse; None without a goal or a figure."""
    middle = Spread.of(line.judged).median
    if line.at_least:
        return middle / line.at_least
    if line.at_most and middle > 0:
        return line.at_most / middle
    return None


def _goals(margins: Sequence[tuple[Line, float]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(WIDTH, ROW * len(margins) + EDGE))
    names = [f"{line.part}: {line.name}\n{line.goal}" for line, _ in margins]
    values = [margin for _, margin in margins]
    bars = axes.barh(
        range(len(values)),
        [max(value, 0.01) - 1 for value in values],
        left=1,
        color=[OURS if value >= 1 else MISSED for value in values],
    )
    axes.bar_label(bars, [f"{number(value)}×" for value in values], padding=3, fontsize=7)
    axes.set_xscale("log")
    # As powers of two, in plain numbers, with room for what is written at the ends of bars.
    axes.xaxis.set_major_locator(LogLocator(base=2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(0.4, *values) / 1.5, max(2.5, *values) * 1.5)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("times better than the goal asks (left of 1: worse)")
    _named(axes, names)
    _save(figure, path)


def _part(lines: list[Line], path: Path) -> None:
    """A row of bars for each unit, because only what has one unit can be compared by eye."""
    by_unit: dict[str, list[Line]] = {}
    for line in lines:
        by_unit.setdefault(line.unit, []).append(line)
    heights = [len(each) + 1.5 for each in by_unit.values()]
    figure, all_axes = plt.subplots(
        len(by_unit),
        1,
        figsize=(WIDTH, ROW * sum(heights) + EDGE),
        gridspec_kw={"height_ratios": heights},
        squeeze=False,
    )
    for (unit, group), axes in zip(by_unit.items(), all_axes[:, 0], strict=True):
        _bars(axes, group)
        axes.set_xlabel(unit, fontsize=8)
    _save(figure, path)


def _bars(axes: Axes, lines: list[Line]) -> None:
    for place, line in enumerate(lines):
        both = line.reference is not None
        _bar(axes, place - (0.2 if both else 0), line.ours, OURS, 0.38 if both else 0.6)
        if line.reference is not None:
            _bar(axes, place + 0.2, line.reference, REFERENCE, 0.38)
    references = sorted({line.against or "reference" for line in lines if line.reference})
    if references:
        handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in (OURS, REFERENCE)]
        axes.legend(handles, ["ours", " / ".join(references)], fontsize=7)
    figures = [each for line in lines for each in (*line.ours, *(line.reference or ()))]
    if min(figures) > 0 and max(figures) / min(figures) > FAR_APART:
        axes.set_xscale("log")
    axes.margins(x=0.12)
    _named(axes, [line.name for line in lines])


def _bar(axes: Axes, place: float, figures: Sequence[float], color: str, height: float) -> None:
    spread = Spread.of(figures)
    reach = [[spread.median - spread.least], [spread.most - spread.median]]
    bar = axes.barh(
        place, spread.median, height, color=color, xerr=reach, error_kw={"elinewidth": 0.8}
    )
    axes.bar_label(bar, [number(spread.median)], padding=3, fontsize=7)


def _named(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: plt.Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
