"""What a pipeline sends, and what can be said of it without asking anyone: its signature and its document."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from django.conf import settings

from config.api.problems import Fault, InvalidRequest, instant
from releases.manifests.manifest import Manifest, Terms, read
from releases.minisign import PublicKey, Signature, SignatureRefused, decoded
from releases.pipeline.identity_tokens import OneTime

SIGNATURE_HEADER = "X-Manifest-Signature"
# A signer's clock may be a little ahead; one far ahead would close the channel until its time has come.
AHEAD = timedelta(minutes=5)
TIMESTAMP_DIGITS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A document for a channel: ``body`` as it came, ``document`` its JSON, ``signature`` the header's text.

    ``token``: the identity token that it came with, if it came with one.
    """

    channel: str
    body: bytes
    document: Mapping[str, Any]
    signature: str
    rollback: bool = False
    dry_run: bool = False
    token: OneTime | None = None

    @property
    def digest(self) -> str:
        return sha256(self.body).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A manifest whose signature holds: ``signature`` is its minisign file, made at ``signed_at``."""

    manifest: Manifest
    body: bytes
    digest: str
    signature: bytes
    signed_at: datetime


def check(submission: Submission, *, key: PublicKey, now: datetime) -> Signed:
    """The document with its signature, or ``InvalidRequest`` with the faults of both."""
    terms = Terms(
        channel=submission.channel,
        cdn_url=settings.CDN_URL,
        platforms=settings.PUBLISH_PLATFORMS,
    )
    read_as = read(submission.body, submission.document, terms)
    faults = read_as if isinstance(read_as, list) else []
    try:
        signature, signed_at = _verified(submission, key, now)
    except SignatureRefused as refused:
        faults = [Fault(f"/{SIGNATURE_HEADER}", refused.code, refused.detail), *faults]
    if faults or isinstance(read_as, list):
        raise InvalidRequest("This manifest cannot be published as it is.", errors=faults)
    return Signed(
        manifest=read_as,
        body=submission.body,
        digest=submission.digest,
        signature=signature,
        signed_at=signed_at,
    )


def _verified(submission: Submission, key: PublicKey, now: datetime) -> tuple[bytes, datetime]:
    """The signature file and its time."""
    if not submission.signature:
        raise SignatureRefused(
            "required", f"Send the manifest's minisign file, in base64, as {SIGNATURE_HEADER}."
        )
    file = decoded(submission.signature)
    signature = Signature.parse(file)
    claims = signature.claims(key)
    signature.check_bytes(submission.body, key)
    return file, _time_of(claims, now)


def _time_of(claims: Mapping[str, str], now: datetime) -> datetime:
    stamp = claims.get("timestamp", "")
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= TIMESTAMP_DIGITS):
        raise SignatureRefused("no_timestamp", "The trusted comment has no timestamp:<seconds>.")
    signed_at = datetime.fromtimestamp(int(stamp), UTC)
    if signed_at > now + AHEAD:
        raise SignatureRefused(
            "timestamp_ahead", f"It was signed at {instant(signed_at)}, which has not come yet."
        )
    return signed_at
