"""Version rules: whether a document is new to its channel, a repeat, or a refused downgrade."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max

from config.platform.problems.problem import Fault, Problem, instant
from releases.channel_control import refuse_halted
from releases.models import WHOLE, Publication, ShellRelease
from releases.pipeline.submissions import SIGNATURE_HEADER, Signed


class VersionConflict(Problem):
    code = "version_conflict"
    status = 409
    title = "Version conflict"
    default_detail = "This version was published with different bytes. A version never changes: publish a new one."


class DowngradeRefused(Problem):
    code = "downgrade_refused"
    status = 409
    title = "Downgrade refused"
    default_detail = "The channel has a newer release."


@dataclass(frozen=True, slots=True)
class Decision:
    """``release``: the known release of the same document. ``repeated``: the publication that this repeats.

    ``live``: whether the channel serves these bytes already, to all shells or to a share of them.
    """

    release: ShellRelease | None
    repeated: Publication | None
    live: bool

    @property
    def is_served(self) -> bool:
        """Returns whether the channel serves this publication. Every other one is verified, even a known one."""
        return self.repeated is not None and self.live

    def share_of(self, asked: int) -> int:
        """The share that it is offered to: today's of a repeat, all of what all have, else as it was asked."""
        if self.repeated is not None:
            return self.repeated.share
        return WHOLE if self.live else asked


def decide(signed: Signed, *, rollback: bool, share: int) -> Decision:
    """Compares a document with what its channel has; raises ``VersionConflict``, ``DowngradeRefused`` or
    ``ChannelHalted``.

    A version belongs to the first bytes whose storing began, even if it did not end: readers may have seen them.
    A repeat changes no share, whatever it asks for: that takes an operator, or a new signature.
    """
    channel, version = signed.manifest.channel, signed.manifest.version
    refuse_halted(channel)
    # A release that an operator has withdrawn counts by its signature alone.
    last = Publication.objects.of(channel).filter(ended_at=None).first()
    release = ShellRelease.objects.filter(channel=channel, version=str(version)).first()
    if release is not None and release.manifest_sha256 != signed.digest:
        raise VersionConflict(
            errors=[Fault("/version", "known", f"{version} was published before.")]
        )
    shown = Publication.objects.of(channel).wanted().first()
    if shown is not None and _is_again(signed, release, shown):
        return Decision(release, shown, live=True)
    if last is None or last.release != release:
        _refuse_older(signed, last, rollback=rollback, signed_at=newest_signature(channel))
        return Decision(release, None, live=False)
    if signed.signed_at > last.signed_at:
        # A new signature makes a new publication, which serves that signature.
        return Decision(release, None, live=last.stored_at is not None)
    if share < WHOLE and not (last.is_partial or last.stored_at):
        # Storing it for all shells began and did not end; this one is for a share.
        return Decision(release, None, live=False)
    return Decision(release, last, live=last.is_partial or last.stored_at is not None)


def _is_again(signed: Signed, release: ShellRelease | None, shown: Publication) -> bool:
    """Returns whether the channel serves this, even if storing of a later publication began and did not end."""
    is_live = shown.stored_at is not None and shown.release == release
    return is_live and signed.signed_at <= shown.signed_at


def newest_signature(channel: str) -> datetime | None:
    """The time of the newest signature; the last publication may be a rollback with an older one."""
    newest: datetime | None = Publication.objects.of(channel).aggregate(at=Max("signed_at"))["at"]
    return newest


def _refuse_older(
    signed: Signed, last: Publication | None, *, rollback: bool, signed_at: datetime | None
) -> None:
    if signed_at is not None and signed.signed_at <= signed_at:
        # A rollback needs a new signature too: old manifests and their signatures are public, so that a stolen
        # secret would be enough to publish one again.
        times = f"{instant(signed.signed_at)}, and the last publish at {instant(signed_at)}"
        raise DowngradeRefused(
            "The channel has a newer signature. Sign this manifest again.",
            errors=[
                Fault(f"/{SIGNATURE_HEADER}", "signature_not_newer", f"It was signed at {times}.")
            ],
        )
    if last and signed.manifest.version < last.release.parsed_version and not rollback:
        raise DowngradeRefused(
            f"The channel has {last.release.version}. Set rollback=true to publish the older version; shells "
            "that have the newer one keep it.",
            errors=[Fault("/version", "older", f"It is older than {last.release.version}.")],
        )
