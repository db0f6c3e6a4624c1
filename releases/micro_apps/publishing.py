"""Publishes a version of a micro app: verifies it, stores it for ever, and moves ``latest`` to it.

The same command finishes after a crash at any step: the row binds the version to its bytes, storage keeps the first
bytes of a path, and a channel names only stored versions. Storage without conditional writes keeps them by our lock.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from django.conf import settings
from django.db import transaction

from accounts.audit import Actor, record
from config.platform.db.advisory_locks import lock_until_commit
from config.platform.db.connections import release_connection
from config.platform.problems.problem import Fault, InvalidRequest, NotConfigured
from config.platform.text.versions import NotAVersion, Version
from licensing.models import APP_SLUG
from releases.delivery import storage
from releases.delivery.storage import Conditions
from releases.manifests.minisign import PublicKey
from releases.micro_apps import bundles, signatures
from releases.micro_apps.channels import move_under_lock
from releases.micro_apps.signatures import BUNDLE
from releases.models import AppChannel, AppVersion, MicroApp
from releases.version_rules import VersionConflict

SLUG = re.compile(APP_SLUG)
SLUG_LENGTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedApp:
    """``created`` unless the version existed; ``latest``: the version that this channel offers now, if any."""

    version: AppVersion
    created: bool
    latest: str | None


def bundle_path(slug: str, version: str) -> str:
    """The storage path of a version's bundle; its signature is beside it."""
    return f"apps/{slug}/{version}/{BUNDLE}"


def publish_app(
    *, slug: str, version: str, bundle: Path, signature: Path, by: Actor, now: datetime
) -> PublishedApp:
    """Verifies and stores a version, and moves ``latest`` to it unless it is older or withdrawn.

    A repeat changes nothing: operators may have moved ``latest`` since. Raises ``InvalidRequest``,
    ``BundleRejected``, ``SignatureRejected``, ``VersionConflict``, ``DowngradeRefused``, ``NotConfigured`` or
    ``StorageUnavailable``; a refusal changes nothing.
    """
    key = _key()
    _check_names(slug, version)
    signed = signatures.read(signature)
    content = bundles.read(bundle)
    claims = signatures.verified(content, signed, key=key)
    with transaction.atomic():
        row = _known(slug, version, content, now=now)
        # A version that an earlier release of this service published stays, whatever its signature names.
        if row is None or row.stored_at is None:
            signatures.check_names(claims, slug=slug, version=version, file=bundle.name)
        if row is None:
            others = AppVersion.objects.filter(app=slug)
            signatures.check_newer(claims, others=others, now=now)
            # The version belongs to these bytes from here on.
            row = AppVersion.objects.create(
                app_id=slug,
                version=version,
                sha256=sha256(content).hexdigest(),
                size=len(content),
                signature=signed,
                signed_with=key.name,
                published_at=now,
                published_by=by.name,
            )
    created = row.stored_at is None
    release_connection()
    # A repeat may bring another signature of the bundle; the first one stays.
    path = bundle_path(slug, version)
    with _only_writer(slug):
        storage.put_once(path, content)
        storage.put_once(f"{path}{storage.SIGNATURE_SUFFIX}", bytes(row.signature))
    latest = _finished(row, by=by, now=now)
    return PublishedApp(
        version=row, created=created, latest=latest.version.version if latest else None
    )


@contextmanager
def _only_writer(slug: str) -> Iterator[None]:
    """Excludes other publishes of the app where storage cannot: of two writers only one would find a path free.

    The one wait for storage under a lock, which holds up nobody but them.
    """
    if storage.conditions() == Conditions.KEPT:
        yield
        return
    with transaction.atomic():
        lock_until_commit(f"releases.app:{slug}")
        yield


def _key() -> PublicKey:
    if settings.APPS_PUBLIC_KEY is None:
        raise NotConfigured("Publishing apps needs APPS_PUBLIC_KEY.")
    return PublicKey.of(settings.APPS_PUBLIC_KEY)


def _check_names(slug: str, version: str) -> None:
    faults = []
    if not SLUG.fullmatch(slug) or len(slug) > SLUG_LENGTH:
        faults.append(
            Fault("/slug", "invalid", "A slug has lower-case letters, digits and single hyphens.")
        )
    try:
        Version.parse(version)
    except NotAVersion as error:
        faults.append(Fault("/version", "invalid_version", str(error)))
    if faults:
        raise InvalidRequest(errors=faults)


def _known(slug: str, version: str, content: bytes, *, now: datetime) -> AppVersion | None:
    """The row of a version, and the lock of its app until the transaction ends. Raises ``VersionConflict``."""
    MicroApp.objects.get_or_create(slug=slug, defaults={"created_at": now})
    app = MicroApp.objects.select_for_update(no_key=True).get(pk=slug)
    row = AppVersion.objects.filter(app=app, version=version).first()
    if row is not None and row.sha256 != sha256(content).hexdigest():
        raise VersionConflict(errors=[Fault("/version", "known", f"{row} was published before.")])
    return row


def _finished(row: AppVersion, *, by: Actor, now: datetime) -> AppChannel | None:
    """Marks the version as stored and moves ``latest`` to it, unless that is newer."""
    with transaction.atomic():
        app = MicroApp.objects.select_for_update(no_key=True).get(pk=row.app_id)
        row.refresh_from_db()
        latest = AppChannel.objects.filter(app=app, name=AppChannel.Name.LATEST).first()
        if row.stored_at is not None:
            return latest
        row.stored_at = now
        row.save(update_fields=["stored_at"])
        after = {"version": row.version, "sha256": row.sha256, "signed_with": row.signed_with}
        record("app:published", str(row), by=by, now=now, target_id=app.pk, after=after)
        is_older = latest is not None and row.parsed_version <= latest.version.parsed_version
        if row.withdrawn_at is not None or is_older:
            return latest
        name = AppChannel.Name.LATEST
        return move_under_lock(app=app, name=name, version=row, reason="Published.", by=by, now=now)
