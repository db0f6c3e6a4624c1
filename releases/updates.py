"""Update checks of shells.

A check costs one query of three columns. Each process caches the content of the latest publications, which never
change.
"""

import base64
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

from config.api.problems import Fault, InvalidRequest, NotFound
from releases.delivery.storage import POINTER_CACHE
from releases.manifests.platforms import base_of
from releases.models import Publication, ShellChannel
from releases.versions import NotAVersion, Version

# Known before anything is published on it, because shells ask before their first release.
FIRST_CHANNEL = "stable"
# Each has at most 1 MiB, and usually a few KiB.
OFFERS_KEPT = 16


class NoSuchUpdate(NotFound):
    """404 with the cache header of other answers, so that shells soon see a new channel."""

    default_detail = "There is no release for this channel and platform."

    def __init__(self) -> None:
        super().__init__(headers={"Cache-Control": POINTER_CACHE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOffer:
    """A publication in the form of an answer. ``signature`` is base64; ``etag`` identifies manifest and signature."""

    version: Version
    platforms: frozenset[str]
    manifest: bytes = field(repr=False)
    signature: str = field(repr=False)
    etag: str

    def has(self, system: str, arch: str | None) -> bool:
        """Whether it has an artifact for a system; ``arch`` None: any architecture."""
        if arch is None:
            return any(each.startswith(f"{system}-") for each in self.platforms)
        return f"{system}-{arch}" in self.platforms

    def is_newer_than(self, current: Version | None) -> bool:
        """Compares as shells do, including build metadata."""
        return current is None or current < self.version


def offered(
    *, channel: str, system: str, arch: str | None, current_version: str | None
) -> ReleaseOffer | None:
    """The offer of a channel, or None if there is none newer than the shell, or the channel is halted.

    ``arch`` None: any architecture. Raises ``NoSuchUpdate`` for an unknown channel, for a platform without an artifact
    and, where the shell named no version, for a channel without a release; ``InvalidRequest`` for an invalid version.
    """
    current = version_of(current_version) if current_version is not None else None
    offer, is_halted = stored_offer(channel)
    if offer is None and current is not None and is_known(channel):
        return None
    if offer is None or not offer.has(system, arch):
        raise NoSuchUpdate
    return None if is_halted or not offer.is_newer_than(current) else offer


def stored_offer(channel: str) -> tuple[ReleaseOffer | None, bool]:
    """The stored offer of a channel, and whether the channel is halted."""
    known = (
        Publication.objects.filter(release__channel=channel)
        .stored()
        .order_by("-pk")
        .values_list("pk", "stored_at", "release__channel__halted_at")
        .first()
    )
    if known is None:
        return None, False
    number, stored_at, halted_at = known
    return _prepared(number, stored_at), halted_at is not None


def is_known(channel: str) -> bool:
    """Whether there is such a channel, with a release or without."""
    return channel == FIRST_CHANNEL or ShellChannel.objects.filter(name=channel).exists()


def version_of(text: str) -> Version:
    """Raises ``InvalidRequest``."""
    try:
        # An unescaped plus arrives as a space, which no version has.
        return Version.parse(text.replace(" ", "+"))
    except NotAVersion as error:
        raise InvalidRequest(
            errors=[Fault("/current_version", "invalid_version", str(error))]
        ) from None


@lru_cache(maxsize=OFFERS_KEPT)
def _prepared(number: int, stored_at: object) -> ReleaseOffer:
    """The key includes the time of storing, because a restored database assigns numbers again."""
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
