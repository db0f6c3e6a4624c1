"""Explains an update check: the same steps, each with its outcome in words."""

from dataclasses import dataclass

from config.api.problems import InvalidRequest
from releases import updates
from releases.updates import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """``steps`` in the order of the checks; the last one decided. ``status`` is that of the response."""

    status: int
    outcome: str
    steps: list[str]


def explain(
    *, channel: str, system: str, arch: str | None, current_version: str | None
) -> Explained:
    """The response to an update check with these values, and the rule that decided it."""
    steps: list[str] = []
    try:
        current = updates.version_of(current_version) if current_version else None
    except InvalidRequest as refused:
        return _refused(400, "a refusal, because its version is none", refused.errors[0].detail)
    offer, is_halted = updates.on(channel)
    if offer is None:
        return _refused(404, "no update: not found", f"Nothing has been published on {channel}.")
    steps.append(f"{channel} has version {offer.version}.")
    wanted = f"{system}-{arch}" if arch else f"{system} of any architecture"
    if not offer.has(system, arch):
        steps.append(
            f"That release has nothing for {wanted}; it has {', '.join(sorted(offer.platforms))}."
        )
        return Explained(status=404, outcome="no update: not found", steps=steps)
    steps.append(f"It has an artifact for {wanted}.")
    if is_halted:
        steps.append("An operator has halted the channel, so nobody is offered anything.")
        return Explained(status=204, outcome="no update", steps=steps)
    steps.append(_compared(offer, current_version if current else None))
    if not offer.is_newer_than(current):
        return Explained(status=204, outcome="no update", steps=steps)
    return Explained(status=200, outcome=f"version {offer.version}", steps=steps)


def _compared(offer: Offer, current: str | None) -> str:
    if current is None:
        return "The shell does not say what it has, so it is offered what there is."
    is_newer = offer.is_newer_than(updates.version_of(current))
    if is_newer:
        return f"{offer.version} is newer than {current}, which the shell has."
    return f"The shell has {current}, and {offer.version} is not newer: shells take no other."


def _refused(status: int, outcome: str, why: str) -> Explained:
    return Explained(status=status, outcome=outcome, steps=[why])
