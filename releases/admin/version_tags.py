"""Template tags about the versions of shells, which telemetry counts and releases compare."""

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

from django import template

from config.console.shares import SHOWN, lines
from config.platform.text.versions import NotAVersion, Version

register = template.Library()
# Composition adds the function that returns the last counted day, with the number of events of each version.
counts: list[Callable[[], tuple[date | None, Sequence[tuple[str, int]]]]] = []

# The comparison of several versions that have none in common.
MIXED = "mixed"


@register.simple_tag
def versions_in_use(offered: str = "") -> dict[str, Any]:
    """Compares the shell versions of the last counted day with one: older (-1), same (0), newer or unknown."""
    [last_by_shell_version] = counts
    day, counted = last_by_shell_version()
    orders = [_order(version, offered) for version, _ in counted]
    others = set(orders[SHOWN:])
    shown = [*orders[:SHOWN], others.pop() if len(others) == 1 else MIXED]
    # The last one is of a line that there is only beyond those shown.
    rows = [(*line, order) for line, order in zip(lines(counted), shown, strict=False)]
    return {"day": day, "rows": rows}


def _order(version: str, offered: str) -> int | None:
    try:
        has, offer = Version.parse(version), Version.parse(offered or version)
    except NotAVersion:
        return None
    return (has > offer) - (has < offer)
