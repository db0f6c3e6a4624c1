"""Figures of a part of the bench: one line a round, and the judgement of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The middle one of several figures, the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> "Spread":
        return cls(median=median(figures), least=min(figures), most=max(figures))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the report.

    ``ours`` and ``reference`` hold a figure for each round, taken in the same round by the same load; without a
    reference the bounds are for our figures themselves, otherwise for the ratio ours / reference of a round.
    ``goal`` is a sentence that says what is wanted, empty for what is told for orientation only.
    """

    part: str
    goal: str
    name: str
    unit: str
    ours: list[float]
    reference: list[float] | None = None
    at_least: float | None = None
    at_most: float | None = None
    # The reference, and a note for readers.
    against: str = ""
    note: str = ""

    @property
    def ratios(self) -> list[float] | None:
        """Ours over the reference's of the same round; None where there is none, or it is nothing."""
        if self.reference is None or not all(self.reference):
            return None
        return [mine / other for mine, other in zip(self.ours, self.reference, strict=True)]

    @property
    def judged(self) -> list[float]:
        """Returns the figures that the bounds apply to."""
        ratios = self.ratios
        return self.ours if ratios is None else ratios

    @property
    def verdict(self) -> str:
        """``met`` or ``missed`` by the median, with the rounds that say otherwise; empty without a bound."""
        if self.at_least is None and self.at_most is None:
            return ""
        word = "met" if self._holds(median(self.judged)) else "missed"
        held = sum(map(self._holds, self.judged))
        rounds = len(self.judged)
        if held not in (0, rounds):
            word += f" ({held} of {rounds} rounds)"
        return word

    @property
    def is_met(self) -> bool | None:
        """None where nothing was asked."""
        return self.verdict.startswith("met") if self.verdict else None

    def told(self) -> str:
        """One line of text: figures, ratio and verdict."""
        words = f"{self.name}: {shown(self.ours)} {self.unit}"
        if self.reference is not None:
            words += f", {self.against or 'reference'} {shown(self.reference)}"
        if self.ratios is not None:
            words += f", ratio {shown(self.ratios)}"
        return f"{words}{f', {self.verdict}: {self.goal}' if self.verdict else ''}"

    def _holds(self, figure: float) -> bool:
        enough = self.at_least is None or figure >= self.at_least
        return enough and (self.at_most is None or figure <= self.at_most)


def in_turns(ways: Mapping[K, Callable[[], T]], *, rounds: int) -> dict[K, list[T]]:
    """Measures each way in each round, in alternating order, so that a machine that warms up favours none."""
    measured: dict[K, list[T]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways) if number % 2 == 0 else reversed(ways):
            measured[name].append(ways[name]())
    return measured


def shown(figures: Sequence[float]) -> str:
    """The median and, where there are several, the least and the most: ``0.71 (0.68-0.75)``."""
    spread = Spread.of(figures)
    if len(figures) == 1:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.least)}-{number(spread.most)})"


def number(figure: float) -> str:
    """Three places that matter: ``0.714``, ``12.3``, ``1,540``."""
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return (
        f"{figure:.1f}"
        if abs(figure) >= 10
        else f"{figure:.2f}"
        if abs(figure) >= 1
        else f"{figure:.3f}"
    )
