"""Explains the answer to an update check, step by step, for operators."""

from dataclasses import dataclass

from config.api.problems import InvalidRequest
from releases import updates
from releases.versions import Version

NOT_FOUND, NO_UPDATE = "no update: not found", "no update"


@dataclass(frozen=True, slots=True)
class Explained:
    """The status of the answer, its outcome, and the steps to it; the last step decided."""

    status: int
    outcome: str
    steps: list[str]


def explain(
    *, channel: str, system: str, arch: str | None, current_version: str | None
) -> Explained:
    """Explains the answer to a shell with these parameters."""
    try:
        current = updates.version_of(current_version) if current_version else None
    except InvalidRequest as refused:
        outcome = "a refusal, because its version is invalid"
        return Explained(400, outcome, [refused.errors[0].detail])
    offer, is_halted = updates.stored_offer(channel)
    if offer is None:
        return _without_a_release(channel, current)
    steps = [f"{channel} has version {offer.version}."]
    wanted = f"{system}-{arch}" if arch else f"{system} of any architecture"
    if not offer.has(system, arch):
        platforms = ", ".join(sorted(offer.platforms))
        steps.append(f"That release has nothing for {wanted}; it has {platforms}.")
        return Explained(404, NOT_FOUND, steps)
    steps.append(f"It has an artifact for {wanted}.")
    if is_halted:
        steps.append("An operator has halted the channel, so it offers no update.")
        return Explained(204, NO_UPDATE, steps)
    if not offer.is_newer_than(current):
        steps.append(f"The shell has {current}, and {offer.version} is not newer.")
        return Explained(204, NO_UPDATE, steps)
    if current is None:
        steps.append("The shell did not send its version, so it gets the current release.")
    else:
        steps.append(f"{offer.version} is newer than {current}, which the shell has.")
    return Explained(200, f"version {offer.version}", steps)


def _without_a_release(channel: str, current: Version | None) -> Explained:
    steps = [f"Nothing has been published on {channel}."]
    if not updates.is_known(channel):
        return Explained(404, NOT_FOUND, ["There is no such channel.", *steps])
    if current is None:
        return Explained(404, NOT_FOUND, ["The shell did not send its version.", *steps])
    return Explained(204, NO_UPDATE, steps)
