"""Update checks of shells.

A check costs one query of a few columns. Each process caches the content of the latest publications, which never
change. Of a release that is offered to a share of the shells, a shell's ``install_id`` decides; it is kept nowhere.
"""

import base64
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any

from django.db.models import Q

from config.platform.problems.problem import Fault, InvalidRequest, NotFound
from config.platform.text.versions import NotAVersion, Version
from releases.delivery.storage import POINTER_CACHE
from releases.manifests.platforms import KNOWN, USUAL, base_of, near_miss
from releases.models import WHOLE, Publication, ShellChannel

# Known before anything is published on it, because shells ask before their first release.
FIRST_CHANNEL = "stable"
# Each has at most 1 MiB, and usually a few KiB.
OFFERS_KEPT = 16
# Answers of a word each.
PINS_KEPT = 256
# An answer that an install_id has decided is for its shell alone.
OWN_CACHE = "private, max-age=60"


class NoSuchUpdate(NotFound):
    """404 with the cache header of other answers, so that shells soon see a new channel."""

    def __init__(self, cache: str, *, meant: str | None = None, of: str = "channel") -> None:
        hint = f"; {meant} was probably meant" if meant else ""
        detail = f"There is no release for this {of} and platform{hint}."
        super().__init__(detail, headers={"Cache-Control": cache})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOffer:
    """A publication in the form of an answer. ``signature`` is base64; ``etag`` identifies manifest and signature."""

    version: Version
    platforms: frozenset[str]
    manifest: bytes = field(repr=False)
    signature: str = field(repr=False)
    etag: str

    def has(self, system: str, arch: str | None) -> bool:
        """Returns whether it has an artifact for a system; ``arch`` None: any architecture."""
        if arch is None:
            return any(each.startswith(f"{system}-") for each in self.platforms)
        return f"{system}-{arch}" in self.platforms

    def is_newer_than(self, current: Version | None) -> bool:
        """Compares as shells do, including build metadata."""
        return current is None or current < self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOffer:
    """The offer of a channel: ``whole`` to everybody, ``part`` to ``share`` percent of the shells."""

    whole: ReleaseOffer | None = None
    part: ReleaseOffer | None = None
    share: int = 0
    is_halted: bool = False

    def to(self, install_id: str | None, *, system: str, arch: str | None) -> ReleaseOffer | None:
        """The release for one shell, before its version counts: the part if it is in and that has its platform."""
        part = self.part
        if install_id is None or part is None or not part.has(system, arch):
            return self.whole
        return part if place_of(install_id, part.version) < self.share else self.whole


def offered(
    *,
    channel: str,
    system: str,
    arch: str | None,
    current_version: str | None,
    version: str | None = None,
    install_id: str | None = None,
) -> tuple[ReleaseOffer | None, str]:
    """The offer to a shell, None if there is none newer or the channel is halted, and the answer's cache header.

    ``arch`` None: any architecture. ``version``: the one that the shell's client is pinned to, in place of what the
    channel offers. Raises ``NoSuchUpdate`` for an unknown channel, for a pinned version that was never published or was
    withdrawn, for a platform without an artifact and, where the shell named no version, for a channel without a
    release; ``InvalidRequest`` for an invalid version.
    """
    current = version_of(current_version) if current_version is not None else None
    if version is not None:
        known, install_id = pinned_offer(channel, version_of(version, member="version")), None
    else:
        known = channel_offer(channel)
    cache = POINTER_CACHE if known.part is None or install_id is None else OWN_CACHE
    offer = known.to(install_id, system=system, arch=arch)
    if offer is None and current is not None and version is None and is_known(channel):
        return None, cache
    if offer is None or not offer.has(system, arch):
        of = "channel" if version is None else "version of the channel"
        raise NoSuchUpdate(cache, meant=meant_by(system, arch), of=of)
    is_newer = not known.is_halted and offer.is_newer_than(current)
    return offer if is_newer else None, cache


def meant_by(system: str, arch: str | None) -> str | None:
    """Guesses the platform that a shell means: ``os=macos&arch=x64`` → ``os=darwin, arch=x86_64``."""
    asked = system if arch is None else f"{system}-{arch}"
    if system in USUAL and (arch is None or asked in KNOWN):
        return None
    meant = near_miss(asked)
    if meant is None:
        return None
    known_system, known_arch = base_of(meant).split("-")
    return f"{base_of(meant)} (os={known_system}&arch={known_arch})"


def channel_offer(channel: str) -> ChannelOffer:
    """Returns the current offer of a channel."""
    served = Publication.objects.filter(release__channel=channel).served().order_by("-pk")
    columns = ("pk", "published_at", "stored_at", "share", "release__channel__halted_at")
    rows = list(served.values_list(*columns)[:2])
    if not rows:
        return ChannelOffer()
    *named, share, halted_at = rows[0]
    newest, is_halted = _prepared(*named), halted_at is not None
    if share == WHOLE:
        return ChannelOffer(whole=newest, is_halted=is_halted)
    # Only one is for a share: the next has ended it.
    whole = _prepared(*rows[1][:3]) if rows[1:] else None
    return ChannelOffer(whole=whole, part=newest, share=share, is_halted=is_halted)


def pinned_offer(channel: str, version: Version) -> ChannelOffer:
    """Returns the offer of one published version of a channel, of none where it was never published or was withdrawn.

    A version is withdrawn by a roll back to an older one, and by the end of its rollout; publishing it again brings it
    back. Later, newer releases withdraw nothing.
    """
    served = Publication.objects.filter(release__channel=channel).served().order_by("-pk")
    last = served.filter(release__version=str(version)).values("pk")[:1]
    both = served.filter(Q(pk__in=last) | Q(pk__in=served.values("pk")[:1])).order_by("pk")
    columns = ("release__version", "release__channel__halted_at", "pk", "published_at", "stored_at")
    rows = list(both.values_list(*columns))
    if not rows or rows[0][0] != str(version):
        return ChannelOffer()
    (_, halted_at, *named), (_, _, *newest) = rows[0], rows[-1]
    if _is_withdrawn(channel, version, tuple(named), tuple(newest)):
        return ChannelOffer()
    return ChannelOffer(whole=_pinned(*named), is_halted=halted_at is not None)


@lru_cache(maxsize=PINS_KEPT)
def _is_withdrawn(
    channel: str, version: Version, pinned: tuple[Any, ...], newest: tuple[Any, ...]
) -> bool:
    """Returns whether an older version was offered after the last time that this one was."""
    later = Publication.objects.filter(release__channel=channel).served()
    later = later.filter(pk__gt=pinned[0], pk__lte=newest[0]).order_by()
    versions = later.values_list("release__version", flat=True).distinct()
    return any(Version.parse(each) < version for each in versions)


def place_of(install_id: str, version: Version) -> int:
    """The place of a shell among a hundred, 0 to 99: with a share of 5, those on 0 to 4 are offered this version.

    The first eight hex digits of the SHA-256 of ``<version>:<install_id>``, as a number, modulo 100.
    """
    return int(sha256(f"{version}:{install_id}".encode()).hexdigest()[:8], 16) % WHOLE


def is_known(channel: str) -> bool:
    """Returns whether there is such a channel, with a release or without."""
    return channel == FIRST_CHANNEL or ShellChannel.objects.filter(name=channel).exists()


def version_of(text: str, *, member: str = "current_version") -> Version:
    """The version that a member of the request names. Raises ``InvalidRequest``."""
    try:
        # An unescaped plus arrives as a space, which no version has.
        return Version.parse(text.replace(" ", "+"))
    except NotAVersion as error:
        raise InvalidRequest(errors=[Fault(f"/{member}", "invalid_version", str(error))]) from None


def _offer_of(number: int, published_at: object, stored_at: object) -> ReleaseOffer:
    """The key includes the times, because a restored database assigns numbers again."""
    publication = Publication.objects.select_related("release").get(pk=number)
    manifest, signature = bytes(publication.release.manifest), bytes(publication.signature)
    return ReleaseOffer(
        version=publication.release.parsed_version,
        platforms=frozenset(map(base_of, publication.release.platforms)),
        manifest=manifest,
        signature=base64.b64encode(signature).decode(),
        # A new signature of the same manifest is another answer.
        etag=f'"{sha256(signature + manifest).hexdigest()[:32]}"',
    )


_prepared = lru_cache(maxsize=OFFERS_KEPT)(_offer_of)
# Beside it: whoever asks for one version after another makes no process read those of the channels again.
_pinned = lru_cache(maxsize=OFFERS_KEPT)(_offer_of)
