"""What a shell is offered when it asks for an update.

Whoever asks costs one query that reads three columns. What can be known of a publication beforehand, which never
changes, is worked out once in each process.
"""

import base64
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

from config.api.problems import Fault, InvalidRequest, NotFound
from releases.delivery.storage import POINTER_CACHE
from releases.manifests.platforms import base_of
from releases.models import Publication
from releases.versions import NotAVersion, Version

# Of 1 MiB each at most, and seldom more than a few KiB.
OFFERS_KEPT = 16


class NoSuchUpdate(NotFound):
    """404 that a CDN keeps no longer than an answer, so that a new channel is seen soon."""

    default_detail = "There is no release for this channel and platform."

    def __init__(self) -> None:
        super().__init__(headers={"Cache-Control": POINTER_CACHE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A publication, ready to be sent. ``signature`` is base64; ``etag`` stands for manifest and signature."""

    version: Version
    platforms: frozenset[str]
    manifest: bytes = field(repr=False)
    signature: str = field(repr=False)
    etag: str

    def has(self, system: str, arch: str | None) -> bool:
        """Whether it has an artifact for it; ``arch`` None is any."""
        if arch is None:
            return any(each.startswith(f"{system}-") for each in self.platforms)
        return f"{system}-{arch}" in self.platforms

    def is_newer_than(self, current: Version | None) -> bool:
        """As shells compare, by the order in which build metadata counts."""
        return current is None or current < self.version


def offered(
    *, channel: str, system: str, arch: str | None, current_version: str | None
) -> Offer | None:
    """What a channel offers, or None where it is halted, or the shell has that or a newer one.

    ``arch`` None is any. Raises ``NoSuchUpdate`` for an unknown channel or a platform without an artifact, and
    ``InvalidRequest`` for a version that is none.
    """
    current = version_of(current_version) if current_version is not None else None
    offer, is_halted = on(channel)
    if offer is None or not offer.has(system, arch):
        raise NoSuchUpdate
    return None if is_halted or not offer.is_newer_than(current) else offer


def on(channel: str) -> tuple[Offer | None, bool]:
    """What storage has of a channel, and whether an operator has halted it."""
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


def version_of(text: str) -> Version:
    """Raises ``InvalidRequest``."""
    try:
        # A plus that was not escaped arrives as a space, which no version holds.
        return Version.parse(text.replace(" ", "+"))
    except NotAVersion as error:
        raise InvalidRequest(
            errors=[Fault("/current_version", "invalid_version", str(error))]
        ) from None


@lru_cache(maxsize=OFFERS_KEPT)
def _prepared(number: int, stored_at: object) -> Offer:
    """Known by its number, and by when it was stored: a database that was restored gives numbers anew."""
    publication = Publication.objects.select_related("release").get(pk=number)
    manifest, signature = bytes(publication.release.manifest), bytes(publication.signature)
    return Offer(
        version=publication.release.parsed_version,
        platforms=frozenset(map(base_of, publication.release.platforms)),
        manifest=manifest,
        signature=base64.b64encode(signature).decode(),
        # Of both: the same manifest signed anew is another answer.
        etag=f'"{sha256(signature + manifest).hexdigest()[:32]}"',
    )
