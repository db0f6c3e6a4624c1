"""Rules for the keys that sign access tokens: rotation, emergency replacement, re-encryption and export."""

from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from hashlib import sha256
from json import dumps
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from django.db import transaction
from jwt.algorithms import RSAAlgorithm

from accounts.audit import Actor, record
from accounts.keys.key_ring import RELOAD_SECONDS, ring
from accounts.models import SigningKey
from accounts.models.keys import Stage
from config.platform.db.advisory_locks import lock_until_commit
from config.platform.encryption import CannotDecrypt, encrypt, renewed
from config.platform.problems.problem import InvalidRequest, instant

# The strength of 128 bits.
KEY_BITS = 3072
# A verifier that meets an unknown kid fetches the list again; jose's waits this long after the last fetch.
REFETCH_SECONDS = 30.0
# No key signs before every process has read it and a verifier with an older list may fetch it again. A verifier that
# caches the list needs its max-age, which the operator asks for.
LEAST_AHEAD = timedelta(seconds=REFETCH_SECONDS + 2 * RELOAD_SECONDS)


class KeyIsAhead(InvalidRequest):
    """Refuses a second key ahead: it would cut short the time that verifiers were promised for the first."""

    default_detail = (
        "A key is already published and starts signing later than that. Wait until it does, or replace all keys "
        "at once (--emergency)."
    )


def rotate_signing_key(*, publish_ahead: timedelta, by: Actor, now: datetime) -> SigningKey:
    """Makes the key that signs next: published now, signing after ``publish_ahead``, at least ``LEAST_AHEAD``.

    The previous key stops signing at that moment and verifies for 90 days more. If no key signs, nobody can sign in,
    and the new one signs at once. Returns a waiting key that signs no later than that instead of making another;
    raises ``KeyIsAhead`` if one waits that signs later.
    """
    made = _made()
    with transaction.atomic():
        _lock_keys()
        before = SigningKey.objects.at_stage(Stage.SIGNING, at=now).first()
        signs_from = now + max(publish_ahead, LEAST_AHEAD) if before else now
        waiting = SigningKey.objects.at_stage(Stage.PUBLISHED, at=now).first()
        if waiting is not None:
            if waiting.signs_from > signs_from:
                raise KeyIsAhead
            return waiting
        SigningKey.objects.filter(superseded_at=None, revoked_at=None).update(
            superseded_at=signs_from
        )
        key = SigningKey.objects.create(**made, published_at=now, signs_from=signs_from)
        after = {"signs_from": instant(signs_from), "supersedes": before.kid if before else None}
        record("signing_key:made", key, by=by, now=now, after=after)
    ring.forget()
    return key


def replace_signing_keys(*, by: Actor, now: datetime) -> SigningKey:
    """Replaces leaked keys: a new key signs at once, and every signature of the others is void.

    This process follows at once, every other within ``key_ring.RELOAD_SECONDS``.
    """
    made = _made()
    with transaction.atomic():
        _lock_keys()
        others = list(
            SigningKey.objects.filter(revoked_at=None).values_list("kid", flat=True).order_by("kid")
        )
        SigningKey.objects.filter(kid__in=others).update(revoked_at=now)
        key = SigningKey.objects.create(**made, published_at=now, signs_from=now)
        after = {"revoked": others}
        record("signing_key:made", key, by=by, now=now, after=after)
        for kid in others:
            record("signing_key:revoked", kid, by=by, now=now, target_id=kid)
    ring.forget()
    return key


class Reencrypted(NamedTuple):
    """The numbers of re-encrypted halves, of all keys, and of halves that no key opens and that sign no more."""

    moved: int
    keys: int
    unreadable: int


def reencrypt_signing_keys(*, by: Actor, now: datetime) -> Reencrypted:
    """Re-encrypts every private half under the newest of ``ENCRYPTION_KEYS``; safe to run twice.

    A half under an unknown key is left as it is if it signs no more. Raises ``CannotDecrypt``, and changes nothing, if
    it signs or will sign.
    """
    with transaction.atomic():
        _lock_keys()
        keys = SigningKey.objects.verifying(at=now)
        moved = []
        unreadable = 0
        for key in keys:
            try:
                fresh = renewed(bytes(key.private_key), place=key.place("private_key"))
            except CannotDecrypt:
                if key.stage(at=now) != Stage.VERIFYING:
                    raise
                unreadable += 1
                continue
            if fresh:
                SigningKey.objects.filter(pk=key.pk).update(private_key=fresh)
                moved.append(key.kid)
        if moved:
            record("signing_key:reencrypted", by=by, now=now, after={"keys": sorted(moved)})
    return Reencrypted(len(moved), len(keys), unreadable)


def public_files(*, now: datetime) -> dict[str, bytes]:
    """The files by which a build verifies tokens offline, by name. The same keys give the same bytes.

    A PEM for each key that verifies now or will; ``jwks.json`` as it is served; and ``keys.json`` with the times from
    which each signs and until which it verifies (null while nothing supersedes it).
    """
    ring.forget()
    keys = list(SigningKey.objects.verifying(at=now).order_by("kid"))
    files = {f"{key.kid}.pem": key.public_pem.encode() for key in keys}
    files["jwks.json"], _ = ring.jwks(now=now)
    files["keys.json"] = dumps({"keys": [_times(key) for key in keys]}, indent=2).encode()
    return files


def _times(key: SigningKey) -> dict[str, str | None]:
    return {
        "kid": key.kid,
        "published_at": instant(key.published_at),
        "signs_from": instant(key.signs_from),
        "verifies_until": instant(key.verifies_until) if key.verifies_until else None,
    }


def _made() -> dict[str, Any]:
    """The columns of a new key pair."""
    private = generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    public = private.public_key()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    kid = thumbprint(public)
    return {
        "kid": kid,
        "public_pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
        "private_key": encrypt(pem, place=SigningKey(kid=kid).place("private_key")),
    }


def _lock_keys() -> None:
    """Serialises rotations; there may be no row to lock yet."""
    lock_until_commit("accounts.signing_keys")


def thumbprint(key: RSAPublicKey) -> str:
    """The RFC 7638 thumbprint: base64url of SHA-256 over the required members in lexical order."""
    jwk = RSAAlgorithm.to_jwk(key, as_dict=True)
    canonical = dumps({name: jwk[name] for name in ("e", "kty", "n")}, separators=(",", ":"))
    return urlsafe_b64encode(sha256(canonical.encode()).digest()).rstrip(b"=").decode()
