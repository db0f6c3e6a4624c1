"""Explains the answer to an update check, step by step, for operators."""

from dataclasses import dataclass

from config.platform.problems.problem import InvalidRequest
from config.platform.text.versions import Version
from releases import updates

NOT_FOUND, NO_UPDATE = "no update: not found", "no update"


@dataclass(frozen=True, slots=True)
class Explained:
    """The status of the answer, its outcome, and the steps to it; the last step decided."""

    status: int
    outcome: str
    steps: list[str]


def explain(
    *,
    channel: str,
    system: str,
    arch: str | None,
    current_version: str | None,
    version: str | None = None,
    install_id: str | None = None,
) -> Explained:
    """Explains the answer to a shell with these parameters."""
    try:
        current = updates.version_of(current_version) if current_version else None
        pinned = updates.version_of(version, member="version") if version else None
    except InvalidRequest as refused:
        outcome = "a refusal, because its version is invalid"
        return Explained(400, outcome, [refused.errors[0].detail])
    if pinned is not None:
        return _pinned(channel, pinned, current, system=system, arch=arch)
    known = updates.channel_offer(channel)
    steps = _of_the_share(known, install_id, system=system, arch=arch)
    offer = known.to(install_id, system=system, arch=arch)
    if offer is None:
        return _without_a_release(channel, current, steps)
    if offer is known.whole:
        steps.append(f"{channel} offers version {offer.version} to all shells.")
    return _of_the_offer(known, offer, current, steps, system=system, arch=arch)


def _pinned(
    channel: str, pinned: Version, current: Version | None, *, system: str, arch: str | None
) -> Explained:
    """Explains the answer to a shell that asks for the version which its client is pinned to."""
    steps = [f"Its client is pinned to version {pinned}, whatever {channel} offers."]
    known = updates.pinned_offer(channel, pinned)
    if known.whole is None:
        said = f"{channel} never published {pinned}, or it was withdrawn: rolled back, or its rollout ended."
        return Explained(404, NOT_FOUND, [*steps, said])
    return _of_the_offer(known, known.whole, current, steps, system=system, arch=arch)


def _of_the_offer(
    known: updates.ChannelOffer,
    offer: updates.ReleaseOffer,
    current: Version | None,
    steps: list[str],
    *,
    system: str,
    arch: str | None,
) -> Explained:
    wanted = f"{system}-{arch}" if arch else f"{system} of any architecture"
    if not offer.has(system, arch):
        platforms = ", ".join(sorted(offer.platforms))
        steps.append(f"That release has nothing for {wanted}; it has {platforms}.")
        if meant := updates.meant_by(system, arch):
            steps.append(f"{meant} was probably meant.")
        return Explained(404, NOT_FOUND, steps)
    steps.append(f"It has an artifact for {wanted}.")
    if known.is_halted:
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


def _of_the_share(
    known: updates.ChannelOffer, install_id: str | None, *, system: str, arch: str | None
) -> list[str]:
    """Returns whether a shell is in the share that a release is offered to, and why."""
    if known.part is None:
        return []
    steps = [f"Version {known.part.version} is offered to {known.share} % of the shells."]
    if install_id is None:
        return [*steps, "The shell did not send its install_id, so it is not in."]
    place = updates.place_of(install_id, known.part.version)
    is_in = "it is in" if place < known.share else "it is not in"
    which = f"The place of this install_id for that version is {place} of 0 to 99"
    steps.append(f"{which}, and the first {known.share} are in: {is_in}.")
    if place < known.share and not known.part.has(system, arch):
        steps.append("That release has nothing for its platform.")
    return steps


def _without_a_release(channel: str, current: Version | None, steps: list[str]) -> Explained:
    steps.append(f"Nothing is published to all shells of {channel}.")
    if not updates.is_known(channel):
        return Explained(404, NOT_FOUND, ["There is no such channel.", *steps])
    if current is None:
        return Explained(404, NOT_FOUND, ["The shell did not send its version.", *steps])
    return Explained(204, NO_UPDATE, steps)
