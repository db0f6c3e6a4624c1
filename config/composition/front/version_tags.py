"""Template tags about the versions of shells, which telemetry reports and releases compare."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from django import template

from config.console import template_tags
from config.console.shares import percents
from config.platform.text.versions import NotAVersion, Version
from telemetry.volumes import last_by_shell_version

register = template.Library()

SHOWN = 8
# The comparison of several versions that have none in common.
MIXED = "mixed"


class Line(NamedTuple):
    """A version, or "3 other versions", with its number and share in percent; all shares add up to 100."""

    version: str
    number: int
    percent: int


@register.simple_tag
def versions_in_use(offered: str = "") -> dict[str, Any]:
    """Compares the shell versions of the last counted day with one: older (-1), same (0), newer or unknown."""
    day, counted = last_by_shell_version()
    orders = [_order(version, offered) for version, _ in counted]
    others = set(orders[SHOWN:])
    shown = [*orders[:SHOWN], others.pop() if len(others) == 1 else MIXED]
    # The last one is of a line that there is only beyond those shown.
    rows = [(*line, order) for line, order in zip(lines(counted), shown, strict=False)]
    return {"day": day, "rows": rows}


def lines(counted: Sequence[tuple[str, int]]) -> list[Line]:
    """Returns the first eight of the numbers by version, and all others in one line."""
    shown, others = list(counted[:SHOWN]), counted[SHOWN:]
    if others:
        name = template_tags.counted(len(others), "other version")
        shown.append((name, sum(number for _, number in others)))
    shares = percents([number for _, number in shown])
    return [Line(*each, share) for each, share in zip(shown, shares, strict=True)]


def _order(version: str, offered: str) -> int | None:
    try:
        has, offer = Version.parse(version), Version.parse(offered or version)
    except NotAVersion:
        return None
    return (has > offer) - (has < offer)
