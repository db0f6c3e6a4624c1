"""Signatures of bundles: each names its app and version, and is newer than those of the app's other versions.

Otherwise whoever can run the command, or write rows or storage, could offer one app's bundle as another's, or an old
one as the newest, without the signing key.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from pathlib import Path

from config.platform.problems.problem import Fault, Problem, instant
from releases.manifests.minisign import (
    DIGEST_BYTES,
    PublicKey,
    Signature,
    SignatureRefused,
    decoded,
    time_of,
)
from releases.models import AppVersion
from releases.version_rules import DowngradeRefused

BUNDLE = "bundle.tar.gz"
LIMIT_BYTES = 4096
POINTER = "/signature"


class SignatureRejected(Problem):
    code = "artifact_rejected"
    status = 422
    title = "Signature rejected"
    default_detail = "This bundle cannot be published; nothing was changed."

    def __init__(self, *faults: Fault) -> None:
        super().__init__(errors=faults)


def read(path: Path) -> bytes:
    """Reads a minisign file, plain or in base64 as Tauri's signer writes it; raises ``SignatureRejected``."""
    content = path.read_bytes()[: LIMIT_BYTES + 1]
    if len(content) > LIMIT_BYTES:
        detail = "This file is too long to be a signature."
        raise SignatureRejected(Fault(POINTER, "signature_unreadable", detail))
    if content.startswith(b"untrusted comment:"):
        return content
    try:
        return decoded(content.decode("ascii", "replace").strip())
    except SignatureRefused as refused:
        raise SignatureRejected(refused.at(POINTER)) from None


def verified(content: bytes, file: bytes, *, key: PublicKey) -> Mapping[str, str]:
    """Returns what the signature of a bundle states, after its verification; raises ``SignatureRejected``."""
    try:
        signature = Signature.parse(file)
        claims = signature.claims(key)
        signature.check_digest(blake2b(content, digest_size=DIGEST_BYTES).digest(), key)
    except SignatureRefused as refused:
        raise SignatureRejected(refused.at(POINTER)) from None
    return claims


def check_names(claims: Mapping[str, str], *, slug: str, version: str, file: str) -> None:
    """Raises ``SignatureRejected`` unless a signature is of this version of this app."""
    faults = [*_faults_of_name(claims, "app", slug), *_faults_of_name(claims, "version", version)]
    if claims.get("file", BUNDLE) not in {BUNDLE, file}:
        faults.append(Fault(POINTER, "wrong_file", "The signature names a different file."))
    if faults:
        raise SignatureRejected(*faults)


def check_newer(claims: Mapping[str, str], *, others: Iterable[AppVersion], now: datetime) -> None:
    """Raises ``DowngradeRefused`` unless a signature is newer than those of the app's other versions."""
    try:
        signed_at = time_of(claims, now=now)
    except SignatureRefused as refused:
        raise SignatureRejected(refused.at(POINTER)) from None
    newest = max(map(_signed_at, others), default=None)
    if newest is not None and signed_at <= newest:
        times = f"{instant(signed_at)}, and another version at {instant(newest)}"
        raise DowngradeRefused(
            "The app has a newer signature. Sign this bundle again.",
            errors=[Fault(POINTER, "signature_not_newer", f"It was signed at {times}.")],
        )


def _faults_of_name(claims: Mapping[str, str], name: str, expected: str) -> Iterator[Fault]:
    if name not in claims:
        detail = (
            f"The signature names no {name}: sign with {name}:{expected} in the trusted comment."
        )
        yield Fault(POINTER, f"{name}_not_signed", detail)
    elif claims[name] != expected:
        yield Fault(POINTER, f"wrong_{name}", f"The signature names a different {name}.")


def _signed_at(version: AppVersion) -> datetime:
    """Returns the signing time, or the publishing time if the signature has no credible one."""
    try:
        fields = Signature.parse(bytes(version.signature)).fields
        return time_of(fields, now=version.published_at)
    except SignatureRefused:
        # Published by a release that did not ask for a time.
        return version.published_at
