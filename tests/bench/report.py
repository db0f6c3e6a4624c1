"""The report: a table of goals, a table a part with every figure, and the same as JSON."""

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from tests.bench.figures import Line, shown

ABOUT = """Every figure is the median of the rounds, with the least and the most in brackets. A ratio is ours over the
reference's of the same round. Goals are judged by the median; where rounds disagree, the verdict says how many held.
How to read it, and what may disturb it, is in [docs/benchmarks.md](../../docs/benchmarks.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Under what it was measured."""

    rounds: int
    seconds: float
    at: datetime
    cores: int
    processor: str
    python: str
    # Processes that wanted to compute when it began, beside the bench.
    load_before: float


def write(lines: Sequence[Line], folder: Path, circumstances: Circumstances) -> Path:
    """Writes ``report.md`` and ``report.json`` into the folder, over those before; where the first is."""
    told = {"circumstances": asdict(circumstances), "lines": [as_json(line) for line in lines]}
    (folder / "report.json").write_text(json.dumps(told, indent=1, default=str) + "\n")
    path = folder / "report.md"
    path.write_text("\n".join(markdown(lines, circumstances)) + "\n")
    return path


def as_json(line: Line) -> dict[str, object]:
    return {**asdict(line), "ratios": line.ratios, "verdict": line.verdict, "is_met": line.is_met}


def markdown(lines: Sequence[Line], circumstances: Circumstances) -> Iterator[str]:
    """The report, line by line."""
    asked = [line for line in lines if line.verdict]
    met = sum(line.is_met is True for line in asked)
    yield from ("# What the bench measured", "", _said(circumstances), "", ABOUT, "")
    yield from (f"## Goals: {met} of {len(asked)} met", "")
    yield from ("| part | what | measured | wanted | verdict |", "|---|---|---|---|---|")
    for line in asked:
        cells = (line.part, line.name, _judged(line), line.goal, line.verdict)
        yield _row(cells)
    yield ""
    for part, group in groupby(lines, key=lambda line: line.part):
        yield from _part(part, list(group))


def circumstances(*, rounds: int, seconds: float, load_before: float) -> Circumstances:
    """Returns the circumstances: this machine and moment."""
    return Circumstances(
        rounds=rounds,
        seconds=seconds,
        at=datetime.now(UTC).replace(microsecond=0),
        cores=len(os.sched_getaffinity(0)),
        processor=_processor(),
        python=platform.python_version(),
        load_before=load_before,
    )


def _part(part: str, lines: list[Line]) -> Iterator[str]:
    yield from (f"## {part}", "")
    yield "| what | unit | ours | reference | ratio | verdict |"
    yield "|---|---|---|---|---|---|"
    for line in lines:
        reference = ""
        if line.reference is not None:
            reference = f"{shown(line.reference)} {f'({line.against})' if line.against else ''}"
        ratio = shown(line.ratios) if line.ratios is not None else ""
        name = f"{line.name}; {line.note}" if line.note else line.name
        yield _row((name, line.unit, shown(line.ours), reference.strip(), ratio, line.verdict))
    yield ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _judged(line: Line) -> str:
    return f"{shown(line.judged)} {'times' if line.ratios is not None else line.unit}"


def _said(what: Circumstances) -> str:
    when = what.at.isoformat().replace("+00:00", "Z")
    return (
        f"{when}, {what.cores} cores of {what.processor}, Python {what.python}, {what.rounds} rounds in "
        f"{what.seconds / 60:.0f} minutes; {what.load_before:.1f} other processes wanted to compute when it began."
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
