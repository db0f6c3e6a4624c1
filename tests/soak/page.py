"""The page of a soak, with what each process held half way and at the end."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from tests.soak.course import Soaked
from tests.soak.flatness import grown, warmed
from tests.soak.looks import KINDS

MINUTE = 60.0
# Kinds that take long by themselves.
PATIENT = {"publish"}


def write(soaked: Soaked, folder: Path, *, day: str) -> list[str]:
    """Writes ``soak.md``; what grew."""
    grew = [said for said, is_flat in _judged(soaked) if not is_flat]
    asked, bad = len(soaked.seen), sum(not each.is_good for each in soaked.seen)
    judged = len(list(_judged(soaked)))
    found = f"{len(grew) or 'none'} of {judged} grew" + "".join(f"; {each}" for each in grew)
    minutes, load = soaked.seconds / MINUTE, median(soaked.loads)
    table = "\n".join(_table(_columns(soaked)))
    said = f"""# Soak

`make soak` asks every surface a few times a second while Redis restarts, workers are recycled, the provider resets and
PostgreSQL ends sessions, and looks at memory, descriptors, connections and greenlets of each process.

On {day}, {minutes:.0f} minutes on two cores with a load of {load:.0f}: {asked:,} requests, {bad:,} of them refused,
as something failed. After warming {found} (`tests/soak`).

{table}
"""
    (folder / "soak.md").write_text(said)
    return grew


def _judged(soaked: Soaked) -> list[tuple[str, bool]]:
    found = []
    for (kind, who), points in sorted(soaked.looks.series.items()):
        warm = warmed(points, until=soaked.seconds)
        if warm:
            said = f"{kind} of {who}, by {grown(warm):+.1f}"
            found.append((said, KINDS[kind].allows(warm)))
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


def _table(columns: Mapping[str, Mapping[int, float]]) -> Iterator[str]:
    """A row for each series: the minute in the middle of its life and its last."""
    yield "| mean of a minute (memory in MiB, PSS) | half way | at the end |"
    yield "|---|---|---|"
    for name, minutes in columns.items():
        ordered = sorted(minutes)
        half, end = minutes[ordered[len(ordered) // 2]], minutes[ordered[-1]]
        yield f"| {name} | {half:.2f} | {end:.2f} |"


def _columns(soaked: Soaked) -> dict[str, dict[int, float]]:
    """By series, its mean in each whole minute."""
    series = {
        f"{kind} of {who}": _by_minute(points)
        for (kind, who), points in sorted(soaked.looks.series.items())
    }
    series["p99 of a request, s"] = {int(minute): took for minute, took in p99s(soaked)}
    whole = max(1, int(soaked.seconds // MINUTE))
    kept = {
        name: {minute: figure for minute, figure in minutes.items() if minute < whole}
        for name, minutes in series.items()
    }
    return {name: minutes for name, minutes in kept.items() if minutes}
