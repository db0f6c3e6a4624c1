"""Charts as SVG from the server: strips of bars and cumulative curves over one axis of time.

Horizontal positions are percent and heights are pixels, so that only the plot stretches and text keeps its shape. The
chart is one image with the pointer's targets above it; a table behind it has the same numbers and links.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any, NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import slugify

from config.console.tables import Table
from config.console.template_tags import short
from config.platform.money import DOLLAR, in_dollars, readable_dollars

# Above each strip and below the last one, in pixels.
GAP, AXIS = 14, 20
# The width of a bar as a fraction of its slot.
BAR = 0.76
NAMES = {"money": "Cost", "tokens": "Tokens", "calls": "Calls", "time": "Time"}


class Bar(NamedTuple):
    """The value of one slot of the axis, and the ``forecast`` in addition to it."""

    label: str
    value: int
    href: str = ""
    title: str = ""
    forecast: int = 0
    kind: str = "first"  # or "second", or "errors"


@dataclass
class Strip:
    """Bars on a scale from 0 in a unit, one for each slot; ``line`` is a cap with its name."""

    bars: Sequence[Bar]
    unit: str = "money"
    line: tuple[int, str] | None = None
    name: str = ""
    # The heading of the table's column, where it differs from the name.
    head: str = ""
    height: int = 84
    # The expected end of a curve, with a name.
    end: tuple[int, str] | None = None

    @cached_property
    def top(self) -> int:
        """Returns the end of the scale, a round number with a round half."""
        marks = [mark[0] for mark in (self.line, self.end) if mark]
        least = DOLLAR // 50 if self.unit == "money" else 2
        most = max(least, *marks, *(bar.value + bar.forecast for bar in self.bars))
        ten: int = 10 ** (len(str(most)) - 1)
        return next(ten * each for each in (1, 2, 4, 6, 10) if ten * each >= most)

    def y(self, value: int) -> float:
        return round(self.height * (1 - value / self.top), 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """The gridlines with their numbers."""
        return [(self.y(each), written(each, self.unit)) for each in (0, self.top // 2, self.top)]

    @property
    def names(self) -> Iterator[tuple[float, str, str]]:
        """Returns the labels to the right of the chart, with their positions."""
        for kind, mark in (("cap", self.line), ("end", self.end)):
            if mark:
                yield self.y(mark[0]), mark[1], kind
        if self.name and not self.line:
            yield self.height / 2, self.name, ""

    def drawn(self, places: int) -> Iterator[tuple[float, float, float, float, str]]:
        """Returns the rectangles, across in percent and down in pixels: x, y, width, height, and the kind."""
        wide = 100 / places
        for place, bar in enumerate(self.bars):
            x = round((place + (1 - BAR) / 2) * wide, 3)
            whole = bar.value + bar.forecast
            for value, end, kind in (
                (bar.value, bar.value, bar.kind),
                (bar.forecast, whole, "forecast"),
            ):
                if value:
                    high = round(self.height * value / self.top, 1)
                    yield x, self.y(end), round(wide * BAR, 3), high, kind


class Curve(Strip):
    """A cumulative curve; the axis continues after the last of ``bars``."""

    def drawn(self, places: int) -> Iterator[Any]:
        """Returns the points in the units of ``rectangles``."""
        for place, value in enumerate((0, *(bar.value for bar in self.bars))):
            yield round(100 * place / places, 3), self.y(value)


@dataclass
class Chart:
    """Strips over one axis, with a label for each slot ("" for none) and a ``legend`` of the kinds of bars."""

    title: str
    strips: Sequence[Strip]
    axis: Sequence[str]
    href: str = ""
    note: str = ""
    legend: Sequence[tuple[str, str]] = ()
    # Numbers that replace those of the strips.
    table: Table | None = None

    @property
    def slug(self) -> str:
        return slugify(self.title)

    @property
    def base(self) -> int:
        """Returns the lower edge of the last strip."""
        return sum(GAP + strip.height for strip in self.strips)

    @property
    def height(self) -> int:
        return self.base + AXIS

    @property
    def is_named(self) -> bool:
        return any(any(strip.names) for strip in self.strips)

    @property
    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields each strip with its offset from the top and its parts."""
        y = 0
        for strip in self.strips:
            drawn = list(strip.drawn(len(self.axis)))
            yield {
                "y": y + GAP,
                "strip": strip,
                "points" if isinstance(strip, Curve) else "bars": drawn,
            }
            y += GAP + strip.height

    @property
    def words(self) -> Iterator[tuple[float, str, str]]:
        """Yields the labels of the axis with position and alignment."""
        last = len(self.axis) - 1
        for place, word in enumerate(self.axis):
            if word:
                x, end = {0: (0.0, "start"), last: (100.0, "end")}.get(
                    place, (round(100 * (place + 0.5) / (last + 1), 3), "middle")
                )
                yield x, end, word

    @property
    def places(self) -> Iterator[tuple[float, float, Bar, list[str]]]:
        """Yields each slot with a bar: x and width in percent, the first bar, and the numbers of all strips."""
        wide = 100 / max(1, len(self.axis))
        longest = max(self.strips, key=lambda strip: len(strip.bars)).bars
        for place, bar in enumerate(longest):
            numbers = [
                written(strip.bars[place].value, strip.unit) if place < len(strip.bars) else ""
                for strip in self.strips
            ]
            yield round(place * wide, 3), round(wide, 3), bar, numbers

    @property
    def areas(self) -> SafeString:
        """The pointer's targets, drawn here: a page of charts has hundreds of numbers, each a step of a template."""
        return format_html_join(
            "",
            '<a{} tabindex="-1"><title>{}</title><rect x="{}%" y="0" width="{}%" height="100%" /></a>',
            ((_href(bar), bar.title or bar.label, x, width) for x, width, bar, _ in self.places),
        )

    @property
    def numbers(self) -> SafeString:
        """The rows of the table behind the picture."""
        return format_html_join(
            "",
            '<tr><th scope="row">{}</th>{}</tr>',
            (
                (
                    format_html("<a{}>{}</a>", _href(bar), bar.label) if bar.href else bar.label,
                    format_html_join("", '<td class="number">{}</td>', ((each,) for each in row)),
                )
                for _, _, bar, row in self.places
            ),
        )

    @property
    def heads(self) -> list[str]:
        return [strip.head or strip.name or NAMES[strip.unit] for strip in self.strips]


def _href(bar: Bar) -> SafeString | str:
    return format_html(' href="{}"', bar.href) if bar.href else ""


def days_axis(days: Sequence[date], *, today: date | None = None) -> list[str]:
    """Returns labels of days: the first with its month, each seventh, the last, and "today"."""
    last = len(days) - 1
    labels = [
        str(day.day) if place == last or (place % 7 == 0 and last - place > 2) else ""
        for place, day in enumerate(days)
    ]
    labels[0] = f"{days[0].day} {days[0]:%b}"
    if today in days:
        place = days.index(today)
        # The label is wider than its slot.
        for near in range(max(0, place - 3), min(len(labels), place + 4)):
            labels[near] = ""
        labels[place] = "today"
    return labels


def written(value: int, unit: str) -> str:
    """Formats a number in a unit; ``time`` is in milliseconds."""
    if unit == "time":
        return f"{value / 1_000:g} s" if value >= 1_000 else f"{value} ms" if value else "0"
    if unit == "money":
        return readable_dollars(value) if value % DOLLAR else in_dollars(value, 0)
    return short(value) if unit == "tokens" else f"{value:,}"
