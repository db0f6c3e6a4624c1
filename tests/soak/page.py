"""The page of a soak, its picture, and its figures as a file."""

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from tests.soak.course import Soaked
from tests.soak.flatness import grown, warmed
from tests.soak.looks import KINDS

MINUTE = 60.0
# What takes long by itself.
PATIENT = {"publish"}


def write(soaked: Soaked, folder: Path, *, day: str) -> list[str]:
    """Writes ``soak.md``, ``soak.csv`` and ``soak.svg``; what grew."""
    grew = [said for said, is_flat in _judged(soaked) if not is_flat]
    _figures(soaked, folder / "soak.csv")
    _picture(soaked, folder / "soak.svg")
    asked, bad = len(soaked.seen), sum(not each.is_good for each in soaked.seen)
    judged = len(list(_judged(soaked)))
    found = f"{len(grew) or 'none'} of {judged} grew" + "".join(f"; {each}" for each in grew)
    minutes, load = soaked.seconds / MINUTE, median(soaked.loads)
    said = f"""# Soak

`make soak` asks every surface a few times a second while Redis restarts, workers are recycled, the provider resets and
PostgreSQL ends sessions, and looks at memory, descriptors, connections and greenlets of each process.

On {day}, {minutes:.0f} minutes on two cores with a load of {load:.0f}: {asked:,} requests, {bad:,} of them refused,
as something failed. After warming {found} ([figures](soak.csv), `tests/soak`).

![Memory, descriptors, greenlets, connections and p99 by minute](soak.svg)
"""
    (folder / "soak.md").write_text(said)
    return grew


def _judged(soaked: Soaked) -> list[tuple[str, bool]]:
    found = []
    for (kind, who), points in sorted(soaked.looks.series.items()):
        warm = warmed(points, until=soaked.seconds)
        if warm:
            said = f"{kind} of {who}, by {grown(warm):+.1f}"
            found.append((said, KINDS[kind][1].allows(warm)))
    return found


def p99s(soaked: Soaked) -> list[tuple[float, float]]:
    """By minute, in seconds: of a stream its longest silence."""
    minutes: dict[int, list[float]] = {}
    for each in soaked.seen:
        if each.kind not in PATIENT:
            minutes.setdefault(int((each.at - soaked.began) // MINUTE), []).append(each.silence)
    return [
        (minute, sorted(took)[min(len(took) - 1, int(0.99 * len(took)))])
        for minute, took in sorted(minutes.items())
    ]


def _by_minute(points: Sequence[tuple[float, float]]) -> dict[int, float]:
    minutes: dict[int, list[float]] = {}
    for at, figure in points:
        minutes.setdefault(int(at // MINUTE), []).append(figure)
    return {minute: fmean(figures) for minute, figures in minutes.items()}


def _figures(soaked: Soaked, path: Path) -> None:
    """A row for each minute, a column for each series."""
    columns = {
        f"{kind} of {who}": _by_minute(points)
        for (kind, who), points in sorted(soaked.looks.series.items())
    }
    columns["p99 of a request, s"] = {int(minute): took for minute, took in p99s(soaked)}
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["minute", *columns])
        for minute in range(int(soaked.seconds / MINUTE)):
            found = (each.get(minute) for each in columns.values())
            rows.writerow([minute, *("" if each is None else f"{each:.2f}" for each in found)])


def _picture(soaked: Soaked, path: Path) -> None:
    figure, all_axes = plt.subplots(len(KINDS) + 1, 1, figsize=(10, 13), sharex=True)
    for (kind, (unit, _)), axes in zip(KINDS.items(), all_axes, strict=False):
        for (own, who), points in sorted(soaked.looks.series.items()):
            if own == kind:
                axes.plot(
                    [at / MINUTE for at, _ in points], [each for _, each in points], label=who
                )
        _finish(axes, unit, soaked)
        axes.legend(fontsize=7, loc="lower right")
    last = all_axes[-1]
    took = p99s(soaked)
    last.bar([minute + 0.5 for minute, _ in took], [each for _, each in took], 0.9, color="#2b6cb0")
    _finish(last, "p99 of a request by minute, s", soaked)
    last.set_xlabel(
        "minutes; dashed: Redis, a worker, the provider or PostgreSQL's sessions end", fontsize=8
    )
    figure.tight_layout()
    # The same figures make the same file.
    with mpl.rc_context({"svg.hashsalt": "soak"}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _finish(axes: Axes, unit: str, soaked: Soaked) -> None:
    for at, _ in soaked.faults:
        axes.axvline(at / MINUTE, color="#a0aec0", linestyle="--", linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
