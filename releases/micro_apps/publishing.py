"""Publishes a version of a micro app: verifies it, stores it for ever, and moves ``latest`` to it.

The same command finishes after a crash at any step: the row binds the version to its bytes, storage keeps the first
bytes of a path, and a channel names only stored versions.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b, sha256
from pathlib import Path

from django.conf import settings
from django.db import transaction

from accounts.audit import Actor, record
from config.api.problems import Fault, InvalidRequest, NotConfigured
from config.db.connections import release_connection
from licensing.models import APP_SLUG
from releases.delivery import storage
from releases.manifests.version_rules import VersionConflict
from releases.micro_apps import bundles
from releases.micro_apps.bundles import BundleRejected
from releases.micro_apps.channels import move_under_lock
from releases.minisign import DIGEST_BYTES, PublicKey, Signature, SignatureRefused, decoded
from releases.models import AppChannel, AppVersion, MicroApp
from releases.versions import NotAVersion, Version

SLUG = re.compile(APP_SLUG)
SLUG_LENGTH = 60
BUNDLE = "bundle.tar.gz"
LIMIT_SIGNATURE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """``created`` unless the version existed; ``latest``: the version that this channel offers now, if any."""

    version: AppVersion
    created: bool
    latest: str | None


def bundle_path(slug: str, version: str) -> str:
    """The storage path of a version's bundle; its signature is beside it."""
    return f"apps/{slug}/{version}/{BUNDLE}"


def publish_app(
    *, slug: str, version: str, bundle: Path, signature: Path, by: Actor, now: datetime
) -> Published:
    """Verifies and stores a version, and moves ``latest`` to it unless it is older or withdrawn.

    A repeat changes nothing: operators may have moved ``latest`` since. Raises ``InvalidRequest``,
    ``BundleRejected``, ``VersionConflict``, ``NotConfigured`` or ``StorageUnavailable``; a refusal changes nothing.
    """
    key = _key()
    _check_names(slug, version)
    signed = _signature_file(signature)
    content = _verified(bundle, signed, version=version, key=key)
    row = _recorded(slug, version, content, signed, key, by=by, now=now)
    created = row.stored_at is None
    release_connection()
    # A repeat may bring another signature of the bundle; the first one stays.
    path = bundle_path(slug, version)
    storage.put_once(path, content)
    storage.put_once(f"{path}{storage.SIGNATURE_SUFFIX}", bytes(row.signature))
    latest = _finished(row, by=by, now=now)
    return Published(
        version=row, created=created, latest=latest.version.version if latest else None
    )


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


def _signature_file(path: Path) -> bytes:
    """Reads a minisign file, plain or in base64 as Tauri's signer writes it."""
    content = path.read_bytes()[: LIMIT_SIGNATURE_BYTES + 1]
    if len(content) > LIMIT_SIGNATURE_BYTES:
        raise _refused("signature_unreadable", "This file is too long for a signature.")
    if content.startswith(b"untrusted comment:"):
        return content
    try:
        return decoded(content.decode("ascii", "replace").strip())
    except SignatureRefused as refused:
        raise _refused(refused.code, refused.detail) from None


def _verified(path: Path, signed: bytes, *, version: str, key: PublicKey) -> bytes:
    """Returns the bundle's bytes after verification of its signatures and members."""
    content = bundles.read(path)
    try:
        signature = Signature.parse(signed)
        claims = signature.claims(key)
        signature.check_digest(blake2b(content, digest_size=DIGEST_BYTES).digest(), key)
    except SignatureRefused as refused:
        raise _refused(refused.code, refused.detail) from None
    if claims.get("file", BUNDLE) not in {BUNDLE, path.name}:
        raise _refused("wrong_file", "The signature names another file.")
    if claims.get("version", version) != version:
        raise _refused("wrong_version", "The signature names another version.")
    return content


def _refused(code: str, detail: str) -> BundleRejected:
    refusal = BundleRejected(code, detail)
    refusal.errors = (Fault("/signature", code, detail),)
    return refusal


def _recorded(
    slug: str,
    version: str,
    content: bytes,
    signed: bytes,
    key: PublicKey,
    *,
    by: Actor,
    now: datetime,
) -> AppVersion:
    """Records the version, which belongs to these bytes from here on."""
    digest = sha256(content).hexdigest()
    with transaction.atomic():
        app, _ = MicroApp.objects.get_or_create(slug=slug, defaults={"created_at": now})
        row, _ = AppVersion.objects.get_or_create(
            app=app,
            version=version,
            defaults={
                "sha256": digest,
                "size": len(content),
                "signature": signed,
                "signed_with": key.name,
                "published_at": now,
                "published_by": by.name,
            },
        )
    if row.sha256 != digest:
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
        record(
            "app:published",
            by=by,
            now=now,
            target=str(row),
            target_id=app.pk,
            after={"version": row.version, "sha256": row.sha256, "signed_with": row.signed_with},
        )
        is_older = latest is not None and row.parsed_version <= latest.version.parsed_version
        if row.withdrawn_at is not None or is_older:
            return latest
        name = AppChannel.Name.LATEST
        return move_under_lock(app=app, name=name, version=row, reason="Published.", by=by, now=now)
