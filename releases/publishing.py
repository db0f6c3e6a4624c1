"""Publishing a manifest: verified, stored, and made its channel's current one; or refused with nothing changed.

The steps, each of which may be the last one before a crash:

1. The manifest's signature and its document are checked, in memory.
2. The channel's lease is taken, and the document compared with what the channel has, in one transaction.
3. Artifacts are fetched and verified. Nothing but the lease is held meanwhile.
4. Release and publication are recorded: from here on the version belongs to these bytes.
5. Storage gets the signature, then the manifest. The manifest is the moment of publishing: whoever reads it alone
   sees the old release or the new one. Whoever reads both may, between the two writes, find a signature that is not
   the manifest's, and has to refuse and read again; the pair in one answer is what ``/v1/updates/manifest`` serves.
6. The publication is marked as stored, which is audited and ends the lease.

A repeat of the same document finishes whatever is left, because it finds the same version with the same bytes.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models.functions import Now

from accounts.audit import Actor, record
from config.problems import Fault, InvalidRequest, NotConfigured, Problem, instant
from releases import artifacts, leases, storage
from releases.artifacts import Found
from releases.leases import Lease
from releases.manifest import Manifest, Terms, read
from releases.minisign import PublicKey, Signature, SignatureRefused, decoded
from releases.models import Publication, ShellArtifact, ShellRelease

log = logging.getLogger(__name__)

SIGNATURE_HEADER = "X-Manifest-Signature"
# A signer's clock may be a little ahead; one far ahead would close the channel until its time has come.
AHEAD = timedelta(minutes=5)
TIMESTAMP_DIGITS = 11
LISTED_FAULTS = 20


class VersionConflict(Problem):
    code = "version_conflict"
    status = 409
    title = "Version conflict"
    default_detail = (
        "This version was published with other bytes. A version never changes: publish the next."
    )


class DowngradeRefused(Problem):
    code = "downgrade_refused"
    status = 409
    title = "Downgrade refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a pipeline sends: ``body`` as it came, ``document`` its JSON, ``signature`` the header's text."""

    channel: str
    body: bytes
    document: Mapping[str, Any]
    signature: str
    rollback: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The channel serves ``version`` at ``url``. ``created`` unless it did so before.

    ``purged``: whether the CDN serves it too; None where no purge is configured.
    """

    channel: str
    version: str
    url: str
    purged: bool | None
    created: bool


@dataclass(frozen=True, slots=True)
class Signed:
    """A manifest's signature file, verified, and when it was made."""

    file: bytes
    at: datetime


@dataclass(frozen=True, slots=True)
class Decision:
    """What a document is to its channel: the release it is already, and the publication that it repeats."""

    release: ShellRelease | None
    repeated: Publication | None
    live: bool


def publish(*, submission: Submission, by: Actor, now: datetime) -> Published:
    """Publishes, or raises a ``Problem`` and changes nothing that a reader could see.

    ``InvalidRequest`` for the document and its signature, ``ArtifactRejected`` for an artifact, ``VersionConflict``,
    ``DowngradeRefused``, ``PublishInProgress``, ``StorageUnavailable``, ``NotConfigured``.
    """
    key = _update_key()
    try:
        manifest, signed = _checked(submission, key, now)
        if submission.dry_run:
            return _tried(submission, manifest, signed, key)
        return _published(submission, manifest, signed, key, by=by, now=now)
    except Problem as refusal:
        if not submission.dry_run:
            _record_refusal(submission, refusal, by=by, now=now)
        raise


def _update_key() -> PublicKey:
    if settings.UPDATE_PUBLIC_KEY is None:
        raise NotConfigured("Publishing needs UPDATE_PUBLIC_KEY, which has not been set.")
    return PublicKey.of(settings.UPDATE_PUBLIC_KEY)


def _checked(
    submission: Submission, key: PublicKey, now: datetime
) -> tuple[Manifest, Signed]:
    """The document and its signature, or ``InvalidRequest`` with the faults of both."""
    terms = Terms(
        channel=submission.channel,
        cdn_url=settings.CDN_URL,
        platforms=settings.PUBLISH_PLATFORMS,
    )
    manifest = read(submission.body, submission.document, terms)
    faults = manifest if isinstance(manifest, list) else []
    try:
        signed = _signed(submission, key, now)
    except SignatureRefused as refused:
        faults = [Fault(f"/{SIGNATURE_HEADER}", refused.code, refused.detail), *faults]
    if faults or isinstance(manifest, list):
        raise InvalidRequest("This manifest cannot be published as it is.", errors=faults)
    return manifest, signed


def _signed(submission: Submission, key: PublicKey, now: datetime) -> Signed:
    if not submission.signature:
        raise SignatureRefused(
            "required", f"Send the manifest's minisign file, in base64, as {SIGNATURE_HEADER}."
        )
    file = decoded(submission.signature)
    signature = Signature.parse(file)
    claims = signature.claims(key)
    signature.check_bytes(submission.body, key)
    stamp = claims.get("timestamp", "")
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= TIMESTAMP_DIGITS):
        raise SignatureRefused("no_timestamp", "The trusted comment has no timestamp:<seconds>.")
    at = datetime.fromtimestamp(int(stamp), UTC)
    if at > now + AHEAD:
        raise SignatureRefused(
            "timestamp_ahead", f"It was signed at {instant(at)}, which has not come yet."
        )
    return Signed(file, at)


def _tried(
    submission: Submission, manifest: Manifest, signed: Signed, key: PublicKey
) -> Published:
    """Everything but to store: what a publish would answer now."""
    decision = _decide(submission, manifest, signed)
    leases.release_connection()
    if decision.release is None:
        artifacts.verify(manifest, key=key)
    return _answer(manifest, created=False)


def _published(
    submission: Submission,
    manifest: Manifest,
    signed: Signed,
    key: PublicKey,
    *,
    by: Actor,
    now: datetime,
) -> Published:
    with transaction.atomic():
        lease = leases.take(channel=manifest.channel)
        decision = _decide(submission, manifest, signed)
    leases.release_connection()
    try:
        found = (
            artifacts.verify(manifest, key=key, alive=lease.keep)
            if decision.release is None
            else []
        )
        publication = _recorded(
            submission, manifest, signed, decision, found, lease=lease, by=by, now=now
        )
        _store(publication, lease)
        _finish(publication, decision, found, submission, lease=lease, by=by, now=now)
    except BaseException:
        _give_back(lease)
        raise
    return _answer(manifest, created=not decision.live)


def _decide(submission: Submission, manifest: Manifest, signed: Signed) -> Decision:
    """Compares a document with what its channel has; raises ``VersionConflict`` or ``DowngradeRefused``."""
    last = Publication.objects.of(manifest.channel).first()
    release = ShellRelease.objects.filter(
        channel=manifest.channel, version=str(manifest.version)
    ).first()
    if release is not None and release.manifest_sha256 != _digest(submission):
        raise VersionConflict(errors=[Fault("/version", "known", "It was published before.")])
    if last is None:
        return Decision(release, None, live=False)
    if last.release == release:
        # Signed anew, it is another publication of the same bytes; else it is the last one again.
        repeated = last if signed.at <= last.signed_at else None
        return Decision(release, repeated, live=last.stored_at is not None)
    _refuse_downgrade(submission, manifest, signed, last)
    return Decision(release, None, live=False)


def _refuse_downgrade(
    submission: Submission, manifest: Manifest, signed: Signed, last: Publication
) -> None:
    if signed.at <= last.signed_at:
        # A rollback needs the signer's word too, or whoever has the secret could bring back any old manifest.
        raise DowngradeRefused(
            "The channel's last publish was signed at the same time or later. Sign this manifest anew.",
            errors=[
                Fault(
                    f"/{SIGNATURE_HEADER}",
                    "signature_not_newer",
                    f"Signed at {instant(signed.at)}; the last publish at {instant(last.signed_at)}.",
                )
            ],
        )
    if manifest.version < last.release.parsed_version and not submission.rollback:
        raise DowngradeRefused(
            f"The channel has {last.release.version}. Shells that have it will not go back to an older "
            "version; rollback=true publishes it for all others.",
            errors=[Fault("/version", "older", f"Older than {last.release.version}.")],
        )


def _recorded(
    submission: Submission,
    manifest: Manifest,
    signed: Signed,
    decision: Decision,
    found: list[Found],
    *,
    lease: Lease,
    by: Actor,
    now: datetime,
) -> Publication:
    """Release, artifacts and publication as rows, where they are not there already."""
    if decision.repeated is not None:
        return decision.repeated
    with transaction.atomic():
        lease.renew()
        release = decision.release
        if release is None:
            release = ShellRelease.objects.create(
                channel_id=manifest.channel,
                version=str(manifest.version),
                manifest=submission.body,
                manifest_sha256=_digest(submission),
                platforms=[each.platform for each in manifest.artifacts],
                published_at=now,
                published_by=by.name,
            )
            ShellArtifact.objects.bulk_create(_rows(release, found))
        return Publication.objects.create(
            release=release,
            signature=signed.file,
            signed_at=signed.at,
            published_at=now,
            published_by=by.name,
        )


def _rows(release: ShellRelease, found: list[Found]) -> list[ShellArtifact]:
    return [
        ShellArtifact(
            release=release,
            platform=each.artifact.platform,
            url=each.artifact.url,
            sha256=each.sha256,
            size=each.size,
            cache_control=each.cache_control,
        )
        for each in found
    ]


def _store(publication: Publication, lease: Lease) -> None:
    """The signature first: see the steps above. Each write has a full term of the lease before it."""
    release = publication.release
    path = storage.pointer_path(release.channel_id)
    lease.renew()
    storage.put(f"{path}{storage.SIGNATURE_SUFFIX}", bytes(publication.signature))
    lease.renew()
    storage.put(path, bytes(release.manifest))


def _finish(
    publication: Publication,
    decision: Decision,
    found: list[Found],
    submission: Submission,
    *,
    lease: Lease,
    by: Actor,
    now: datetime,
) -> None:
    release = publication.release
    with transaction.atomic():
        lease.end()
        Publication.objects.filter(pk=publication.pk, stored_at=None).update(stored_at=Now())
        record(
            "release:repeated" if decision.live else "release:published",
            by=by,
            now=now,
            target=str(release),
            target_id=release.channel_id,
            after={
                "version": release.version,
                "manifest_sha256": release.manifest_sha256,
                "signed_at": instant(publication.signed_at),
                "rollback": submission.rollback,
                "artifacts": artifacts.summary(found),
            },
        )


def _give_back(lease: Lease) -> None:
    """Another publish need not wait for the lease's end. Where the database is away, it has to."""
    try:
        lease.end()
    except (leases.PublishInProgress, DatabaseError):
        log.warning("lease_not_given_back", extra={"channel": lease.channel})


def _record_refusal(
    submission: Submission, refusal: Problem, *, by: Actor, now: datetime
) -> None:
    """Who holds a secret and is refused is worth knowing: it may have been stolen."""
    version = submission.document.get("version")
    record(
        "release:refused",
        by=by,
        now=now,
        target=submission.channel,
        target_id=submission.channel,
        after={
            "code": refusal.code,
            "version": version[:120] if isinstance(version, str) else None,
            "manifest_sha256": _digest(submission),
            "errors": [
                f"{fault.pointer[:120]} {fault.code}" for fault in refusal.errors[:LISTED_FAULTS]
            ],
        },
    )


def _answer(manifest: Manifest, *, created: bool) -> Published:
    return Published(
        channel=manifest.channel,
        version=str(manifest.version),
        url=f"{settings.CDN_URL}/{storage.pointer_path(manifest.channel)}",
        purged=None,
        created=created,
    )


def _digest(submission: Submission) -> str:
    return sha256(submission.body).hexdigest()
