"""Evidence of a release: its verified artifacts and their signatures, from its manifest and rows."""

import json
from dataclasses import dataclass

from releases.delivery.storage import IMMUTABLE_CACHE
from releases.manifests.minisign import Signature, SignatureRefused, decoded
from releases.models import ShellArtifact, ShellRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """An artifact with the key id and the trusted comment of its signature."""

    artifact: ShellArtifact
    key: str
    comment: str

    @property
    def is_kept_for_good(self) -> bool:
        """Returns whether the CDN's cache header lets caches keep the file for ever."""
        said = {each.strip() for each in self.artifact.cache_control.lower().split(",")}
        return said >= {each.strip() for each in IMMUTABLE_CACHE.split(",")}


def verified(release: ShellRelease) -> list[Verified]:
    """The artifacts of a release by platform."""
    entries = _signatures(bytes(release.manifest))
    return [_verified(each, entries.get(each.platform)) for each in release.artifacts.all()]


def _verified(artifact: ShellArtifact, signature: str | None) -> Verified:
    try:
        parsed = Signature.parse(decoded(signature or ""))
    except SignatureRefused:
        return Verified(artifact=artifact, key="", comment="")
    return Verified(artifact=artifact, key=parsed.key_name, comment=parsed.comment)


def _signatures(manifest: bytes) -> dict[str, str]:
    """The signature of each platform."""
    try:
        platforms = json.loads(manifest)["platforms"]
        return {name: str(entry["signature"]) for name, entry in platforms.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
