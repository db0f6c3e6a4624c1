"""Submissions of pipelines, and the checks of their signature and document in memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.conf import settings

from config.platform.problems.problem import InvalidRequest
from releases.manifests.manifest import Manifest, Terms, read
from releases.manifests.minisign import PublicKey, Signature, SignatureRefused, decoded, time_of
from releases.models import WHOLE
from releases.pipeline.identity_tokens import OneTime

SIGNATURE_HEADER = "X-Manifest-Signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A document for a channel: the received ``body``, its JSON as ``document``, and the ``signature`` header.

    ``share``: percent of the shells to offer it to. ``token``: the identity token of the request, if any.
    """

    channel: str
    body: bytes
    document: Mapping[str, Any]
    signature: str
    rollback: bool = False
    dry_run: bool = False
    share: int = WHOLE
    token: OneTime | None = None

    @property
    def digest(self) -> str:
        return sha256(self.body).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A manifest with a verified signature: ``signature`` is its minisign file, made at ``signed_at``."""

    manifest: Manifest
    body: bytes
    digest: str
    signature: bytes
    signed_at: datetime


def check(submission: Submission, *, key: PublicKey, now: datetime) -> Signed:
    """Verifies a document and its signature; raises ``InvalidRequest`` with the faults of both."""
    terms = Terms(
        channel=submission.channel, cdn_url=settings.CDN_URL, platforms=settings.PUBLISH_PLATFORMS
    )
    read_as = read(submission.body, submission.document, terms)
    faults = read_as if isinstance(read_as, list) else []
    try:
        signature, signed_at = _verified(submission, key, now)
    except SignatureRefused as refused:
        faults = [refused.at(f"/{SIGNATURE_HEADER}"), *faults]
    if faults or isinstance(read_as, list):
        raise InvalidRequest("This manifest has errors.", errors=faults)
    return Signed(
        manifest=read_as,
        body=submission.body,
        digest=submission.digest,
        signature=signature,
        signed_at=signed_at,
    )


def _verified(submission: Submission, key: PublicKey, now: datetime) -> tuple[bytes, datetime]:
    """Returns the verified signature file and its time."""
    if not submission.signature:
        raise SignatureRefused(
            "required", f"Send the manifest's minisign file, in base64, as {SIGNATURE_HEADER}."
        )
    file = decoded(submission.signature)
    signature = Signature.parse(file)
    claims = signature.claims(key)
    signature.check_bytes(submission.body, key)
    return file, time_of(claims, now=now)
