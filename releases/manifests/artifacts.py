"""Artifacts, held to what a shell verifies before it installs one: nothing is published that it would refuse."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b, sha256

from config.api.problems import Fault, Problem
from releases.delivery.fetching import Fetched, FetchRefused, fetch
from releases.manifests.manifest import Artifact, Manifest
from releases.minisign import DIGEST_BYTES, PublicKey, Signature, SignatureRefused, decoded

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
    """What was read from an artifact's address, and proved to be what was signed. ``size`` in bytes."""

    artifact: Artifact
    sha256: str
    size: int
    cache_control: str


def verify(
    manifest: Manifest, *, key: PublicKey, alive: Callable[[], None] = lambda: None
) -> list[Found]:
    """Fetches every artifact and checks it against its signature; raises ``ArtifactRejected`` with all faults.

    What can be told from the signatures alone is told before anything is fetched. ``alive`` is called again
    and again while this waits; what it raises ends it.
    """
    signatures = _verified_claims(manifest, key)
    deadline = time.monotonic() + TOTAL_SECONDS
    faults, found = [], []
    # Two platforms may install the same file; it is read once.
    known: dict[tuple[str, str], Found | Fault] = {}
    for artifact in manifest.artifacts:
        alive()
        same = (artifact.url, artifact.signature)
        if same not in known:
            known[same] = _judge(artifact, signatures[artifact], key, deadline, alive)
        result = known[same]
        if isinstance(result, Fault):
            faults.append(Fault(_renamed(result.pointer, artifact), result.code, result.detail))
        else:
            found.append(Found(artifact, result.sha256, result.size, result.cache_control))
    if faults:
        raise ArtifactRejected(errors=faults)
    return found


def _verified_claims(manifest: Manifest, key: PublicKey) -> dict[Artifact, Signature]:
    signatures, faults = {}, []
    for artifact in manifest.artifacts:
        try:
            signatures[artifact] = _signature(artifact, str(manifest.version), key)
        except SignatureRefused as refused:
            faults.append(Fault(_at(artifact, "signature"), refused.code, refused.detail))
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
            f"The signature is one of {_quoted(named)}, and the address ends in {artifact.name}.",
        )
    if stamped is None:
        raise SignatureRefused(
            "version_not_signed",
            "The signature does not say which version it is for: sign with --app-version.",
        )
    if stamped != version:
        raise SignatureRefused(
            "wrong_version",
            f"The signature is one of version {_quoted(stamped)}, and this release is {version}.",
        )
    return signature


def _judge(
    artifact: Artifact,
    signature: Signature,
    key: PublicKey,
    deadline: float,
    alive: Callable[[], None],
) -> Found | Fault:
    try:
        with fetch(artifact.url, limit=LIMIT_BYTES, deadline=deadline) as fetched:
            hashed, plain, size = blake2b(digest_size=DIGEST_BYTES), sha256(), 0
            for chunk in _paced(fetched, alive):
                hashed.update(chunk)
                plain.update(chunk)
                size += len(chunk)
        signature.check_digest(hashed.digest(), key)
    except FetchRefused as refused:
        return Fault(_at(artifact, "url"), refused.code, refused.detail)
    except SignatureRefused as refused:
        return Fault(_at(artifact, "signature"), refused.code, refused.detail)
    return Found(artifact, plain.hexdigest(), size, fetched.cache_control[:HEADER_LENGTH])


def _paced(fetched: Fetched, alive: Callable[[], None]) -> Iterator[bytes]:
    for chunk in fetched:
        alive()
        # A file that arrives as fast as it is read would keep a cooperative worker from everyone else.
        time.sleep(0)
        yield chunk


def _at(artifact: Artifact, member: str) -> str:
    return f"/platforms/{artifact.platform}/{member}"


def _renamed(pointer: str, artifact: Artifact) -> str:
    return _at(artifact, pointer.rpartition("/")[2])


def _quoted(text: str | None) -> str:
    """What a trusted comment names, short enough to repeat."""
    return f"“{text[:80]}”" if text else "no file"
