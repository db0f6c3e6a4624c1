"""Template tags about the versions of shells, which telemetry reports and releases compare."""

from typing import Any

from django import template

from releases.versions import NotAVersion, Version
from telemetry.volumes import last_by_shell_version

register = template.Library()


@register.simple_tag
def versions_in_use(offered: str = "") -> dict[str, Any]:
    """Compares the shell versions of the last counted day with one: older (-1), same (0), newer or unknown."""
    day, counted = last_by_shell_version()
    rows = [(version, events, _order(version, offered)) for version, events in counted]
    return {"day": day, "whole": sum(events for _, events in counted), "rows": rows}


def _order(version: str, offered: str) -> int | None:
    try:
        has, offer = Version.parse(version), Version.parse(offered or version)
    except NotAVersion:
        return None
    return (has > offer) - (has < offer)
