"""Verification of artifacts, as a shell does before it installs one."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256

from config.platform.problems.problem import Fault, Problem
from releases.delivery.fetching import FetchRefused, fetch
from releases.manifests.addresses import OTHER_SIGNS, RENAME
from releases.manifests.manifest import Artifact, Manifest
from releases.manifests.minisign import (
    DIGEST_BYTES,
    PublicKey,
    Signature,
    SignatureRefused,
    decoded,
)

TOTAL_SECONDS = 120.0
LIMIT_BYTES = 512 * 2**20
HEADER_LENGTH = 200


class ArtifactRejected(Problem):
    code = "artifact_rejected"
    status = 422
    title = "Artifact rejected"
    default_detail = "A shell would refuse this release; nothing was published."


@dataclass(frozen=True, slots=True)
class Found:
    """A verified artifact; ``size`` in bytes, ``cache_control`` as the CDN answered."""

    artifact: Artifact
    sha256: str
    size: int
    cache_control: str


def verify(
    manifest: Manifest, *, key: PublicKey, alive: Callable[[], None] = lambda: None
) -> list[Found]:
    """Fetches every artifact and verifies its signature; raises ``ArtifactRejected`` with all faults.

    Checks the signature files before it fetches anything. Calls ``alive`` repeatedly while it waits, and stops on
    an exception from it.
    """
    signatures = _verified_claims(manifest, key)
    deadline = time.monotonic() + TOTAL_SECONDS
    faults, found = [], []
    # Two platforms may install the same file, which is read once.
    known: dict[tuple[str, str], Found | Fault] = {}
    for artifact in manifest.artifacts:
        alive()
        same = (artifact.url, artifact.signature)
        if same not in known:
            known[same] = _fetched(artifact, signatures[artifact], key, deadline, alive)
        result = known[same]
        if isinstance(result, Fault):
            faults.append(replace(result, pointer=_at(artifact, result.pointer)))
        else:
            found.append(replace(result, artifact=artifact))
    if faults:
        raise ArtifactRejected(errors=faults)
    return found


def _verified_claims(manifest: Manifest, key: PublicKey) -> dict[Artifact, Signature]:
    signatures, faults = {}, []
    for artifact in manifest.artifacts:
        try:
            signatures[artifact] = _signature(artifact, str(manifest.version), key)
        except SignatureRefused as refused:
            faults.append(refused.at(_at(artifact, "signature")))
    if faults:
        raise ArtifactRejected(errors=faults)
    return signatures


def _signature(artifact: Artifact, version: str, key: PublicKey) -> Signature:
    signature = Signature.parse(decoded(artifact.signature))
    signature.refuse_legacy()
    claims = signature.claims(key)
    named, stamped = claims.get("file"), claims.get("version")
    if named != artifact.name:
        raise SignatureRefused(
            "wrong_file",
            f"The signature names {_quoted(named)}, but the address ends in {artifact.name}.{_advice(named)}",
        )
    if stamped is None:
        raise SignatureRefused(
            "version_not_signed", "The signature names no version: sign with --app-version."
        )
    if stamped != version:
        raise SignatureRefused(
            "wrong_version",
            f"The signature names version {_quoted(stamped)}, but this release is {version}.",
        )
    return signature


def _fetched(
    artifact: Artifact,
    signature: Signature,
    key: PublicKey,
    deadline: float,
    alive: Callable[[], None],
) -> Found | Fault:
    """Reads and verifies a file; a fault's pointer is a member of the artifact."""
    hashed, plain, size = blake2b(digest_size=DIGEST_BYTES), sha256(), 0
    try:
        with fetch(artifact.url, limit=LIMIT_BYTES, deadline=deadline) as file:
            for chunk in file:
                alive()
                # Gives way to other requests of a cooperative worker while a fast file arrives.
                time.sleep(0)
                hashed.update(chunk)
                plain.update(chunk)
                size += len(chunk)
        signature.check_digest(hashed.digest(), key)
    except FetchRefused as refused:
        return refused.at("url")
    except SignatureRefused as refused:
        return refused.at("signature")
    return Found(artifact, plain.hexdigest(), size, file.cache_control[:HEADER_LENGTH])


def _at(artifact: Artifact, member: str) -> str:
    return f"/platforms/{artifact.platform}/{member}"


def _advice(named: str | None) -> str:
    """Returns advice on publishing a file whose signed name no address may have."""
    return f" {RENAME}" if named and OTHER_SIGNS.search(named) else ""


def _quoted(text: str | None) -> str:
    """A field of a trusted comment, cut to a length fit for a message."""
    return f"“{text[:80]}”" if text else "no file"
