"""Publishes a manifest: verifies, stores and makes it its channel's current one, or refuses it and changes nothing.

The steps, each of which may be the last one before a crash:

1. Check the manifest's signature and its document, in memory.
2. Take the channel's lease and compare the document with the channel, in one transaction.
3. Fetch and verify the artifacts. This holds nothing but the lease.
4. Record release and publication: from here on the version belongs to these bytes. A queued job gives storage its
   earlier files again if a crash prevents the next steps.
5. Write the signature to storage, then the manifest. The manifest is the moment of publishing: its readers see the old
   release or the new one. Between the two writes, a reader of both may find a signature that does not match, and has
   to refuse it and read again; the update address of this service answers with both at once.
6. Mark the publication as stored, audit it, queue the purge of the CDN, and end the lease.
7. Purge the CDN and check its answers. The release is published even if this fails; a worker repeats it.

A release for a share of the shells is published by its rows: steps 4 and 6 are one transaction, and there is no other.

A repeat of the same document finishes the remaining steps, because it finds the same version with the same bytes.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from accounts.audit import Actor, record
from config.platform.db.connections import release_connection
from config.platform.problems.problem import NotConfigured, Problem, instant
from config.platform.runtime.clock import clock_from
from releases.delivery import leases, purging, storage, storage_sync
from releases.delivery.leases import PublishLease
from releases.manifests import artifacts
from releases.manifests.artifacts import Found
from releases.manifests.minisign import PublicKey
from releases.models import WHOLE, Publication, Purge, ShellArtifact, ShellRelease
from releases.pipeline import served_tokens
from releases.pipeline.submissions import Signed, Submission, check
from releases.version_rules import Decision, decide

LISTED_FAULTS = 20
LISTED_LENGTH = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRelease:
    """The channel serves ``version`` at ``url``; ``created`` unless it did before.

    ``share``: percent of the shells that are offered it. ``purged``: whether the CDN serves it too; None for a dry run,
    a share below 100, or without a configured purge.
    """

    channel: str
    version: str
    url: str
    share: int
    purged: bool | None
    created: bool


def publish(*, submission: Submission, by: Actor, now: datetime) -> PublishedRelease:
    """Publishes, or with ``dry_run`` only checks.

    Raises ``TokenServed``, ``InvalidRequest`` for the document and its signature, ``ArtifactRejected``,
    ``VersionConflict``, ``DowngradeRefused``, ``PublishInProgress``, ``StorageUnavailable``, ``NotConfigured``.
    """
    key, dry_run = _update_key(), submission.dry_run
    try:
        if submission.token is not None:
            digest = submission.digest
            served_tokens.serve(submission.token, body_sha256=digest, now=now, keep=not dry_run)
        signed = check(submission, key=key, now=now)
        if dry_run:
            return _try(submission, signed, key)
        return _publish(submission, signed, key, by=by, now=now)
    except Problem as refusal:
        _record_refusal(submission, refusal, by=by, now=now)
        raise


def _update_key() -> PublicKey:
    if settings.UPDATE_PUBLIC_KEY is None:
        raise NotConfigured("Publishing needs UPDATE_PUBLIC_KEY.")
    return PublicKey.of(settings.UPDATE_PUBLIC_KEY)


def _try(submission: Submission, signed: Signed, key: PublicKey) -> PublishedRelease:
    """Checks without a lease, and stores nothing."""
    decision = decide(signed, rollback=submission.rollback, share=submission.share)
    release_connection()
    if not decision.is_served:
        artifacts.verify(signed.manifest, key=key)
    return _answer(signed, decision.share_of(submission.share), created=False, purged=None)


def _publish(
    submission: Submission, signed: Signed, key: PublicKey, *, by: Actor, now: datetime
) -> PublishedRelease:
    with transaction.atomic():
        lease = leases.take(channel=signed.manifest.channel)
        decision = decide(signed, rollback=submission.rollback, share=submission.share)
    release_connection()
    share = decision.share_of(submission.share)
    # Fetching artifacts may take minutes.
    clock = clock_from(now)
    try:
        served = decision.is_served
        found = [] if served else artifacts.verify(signed.manifest, key=key, alive=lease.keep)
        with transaction.atomic() if share < WHOLE else nullcontext():
            publication = _recorded(signed, decision, found, share, lease=lease, by=by, now=now)
            if share == WHOLE:
                storage_sync.write(publication, lease=lease)
            purge = _finish(
                publication, repeated=decision.live, lease=lease, by=by, now=now, over_at=clock()
            )
    except BaseException:
        leases.give_back(lease)
        raise
    purged = purging.settle(purge, now=clock())
    return _answer(signed, share, created=not decision.live, purged=purged)


def _recorded(
    signed: Signed,
    decision: Decision,
    found: list[Found],
    share: int,
    *,
    lease: PublishLease,
    by: Actor,
    now: datetime,
) -> Publication:
    """Records the publication with its release and artifacts, unless they exist."""
    if decision.repeated is not None and decision.is_served:
        return decision.repeated
    with transaction.atomic():
        lease.renew()
        if share == WHOLE:
            # The job repairs storage after a crash between the two writes.
            storage_sync.begin(channel=lease.channel, now=now)
        else:
            earlier = Publication.objects.filter(release__channel=lease.channel, share__lt=WHOLE)
            earlier.filter(ended_at=None).update(ended_at=now)
        return decision.repeated or Publication.objects.create(
            release=decision.release or _release(signed, found, by=by, now=now),
            signature=signed.signature,
            signed_at=signed.signed_at,
            published_at=now,
            published_by=by.name,
            share=share,
        )


def _release(signed: Signed, found: list[Found], *, by: Actor, now: datetime) -> ShellRelease:
    release = ShellRelease.objects.create(
        channel_id=signed.manifest.channel,
        version=str(signed.manifest.version),
        manifest=signed.body,
        manifest_sha256=signed.digest,
        platforms=[each.platform for each in signed.manifest.artifacts],
        published_at=now,
        published_by=by.name,
    )
    ShellArtifact.objects.bulk_create(
        ShellArtifact(
            release=release,
            platform=each.artifact.platform,
            url=each.artifact.url,
            sha256=each.sha256,
            size=each.size,
            cache_control=each.cache_control,
        )
        for each in found
    )
    return release


def _finish(
    publication: Publication,
    *,
    repeated: bool,
    lease: PublishLease,
    by: Actor,
    now: datetime,
    over_at: datetime,
) -> Purge | None:
    """Marks the publication as stored, if it is, and ends the lease; returns the queued purge, if any."""
    release = publication.release
    with transaction.atomic():
        lease.end()
        before = Publication.objects.of(release.channel_id).stored().first()
        if not publication.is_partial:
            storage_sync.done(channel=release.channel_id)
            Publication.objects.filter(pk=publication.pk, stored_at=None).update(stored_at=Now())
        record(
            "release:repeated" if repeated else "release:published",
            str(release),
            by=by,
            now=now,
            target_id=release.channel_id,
            before={"version": before.release.version} if before else None,
            after={
                "version": release.version,
                "manifest_sha256": release.manifest_sha256,
                "signed_at": instant(publication.signed_at),
                "share": publication.share,
            },
        )
        if publication.is_partial:
            return None
        return purging.ask(channel=release.channel_id, publication=publication, now=over_at)


def _record_refusal(submission: Submission, refusal: Problem, *, by: Actor, now: datetime) -> None:
    """Audits refusals: the secret of a refused publisher may be stolen."""
    version = submission.document.get("version")
    listed = refusal.errors[:LISTED_FAULTS]
    record(
        "release:refused" if refusal.status < 500 else "release:failed",
        submission.channel,
        by=by,
        now=now,
        target_id=submission.channel,
        after={
            "dry_run": submission.dry_run,
            "code": refusal.code,
            "version": version[:LISTED_LENGTH] if isinstance(version, str) else None,
            "manifest_sha256": submission.digest,
            "errors": [f"{fault.pointer[:LISTED_LENGTH]} {fault.code}" for fault in listed],
        },
    )


def _answer(signed: Signed, share: int, *, created: bool, purged: bool | None) -> PublishedRelease:
    channel = signed.manifest.channel
    return PublishedRelease(
        channel=channel,
        version=str(signed.manifest.version),
        url=f"{settings.CDN_URL}/{storage.pointer_path(channel)}",
        share=share,
        purged=purged,
        created=created,
    )
