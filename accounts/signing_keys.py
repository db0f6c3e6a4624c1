"""Making and rotating the keys that sign access tokens."""

from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from hashlib import sha256
from json import dumps
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from django.db import connection, transaction
from jwt.algorithms import RSAAlgorithm

from accounts.audit import Actor, record
from accounts.key_ring import ring
from accounts.models import SigningKey
from config.encryption import encrypt
from config.problems import InvalidRequest

KEY_BITS = 2048


class KeyIsAhead(InvalidRequest):
    """A second one published ahead would cut short what verifiers were promised of the first."""

    default_detail = (
        "A key is published already and has not begun to sign. Wait until it does, or replace all keys "
        "at once (--emergency)."
    )


def rotate_signing_key(*, publish_ahead: timedelta, by: Actor, now: datetime) -> SigningKey:
    """Makes a key that is published now and signs after ``publish_ahead``; the one before stops signing then.

    Raises ``KeyIsAhead`` while an earlier key waits to sign.
    """
    made = _made()
    signs_from = now + publish_ahead
    with transaction.atomic():
        _lock_keys()
        if SigningKey.objects.filter(signs_from__gt=now, revoked_at=None).exists():
            raise KeyIsAhead
        SigningKey.objects.filter(superseded_at=None, revoked_at=None).update(
            superseded_at=signs_from
        )
        key = SigningKey.objects.create(**made, published_at=now, signs_from=signs_from)
        record("signing_key:made", by=by, now=now, target=key.kid, target_id=key.kid)
    ring.forget()
    return key


def replace_signing_keys(*, by: Actor, now: datetime) -> SigningKey:
    """For a key that has leaked: a new one signs at once, and whatever another has signed is void.

    This process knows at once, every other within ``key_ring.RELOAD_SECONDS``.
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
        record("signing_key:made", by=by, now=now, target=key.kid, target_id=key.kid, after=after)
        for kid in others:
            record("signing_key:revoked", by=by, now=now, target=kid, target_id=kid)
    ring.forget()
    return key


def public_files(*, now: datetime) -> dict[str, bytes]:
    """What a build takes along to verify tokens offline, by file name: a PEM for each key that verifies now or
    will, and ``jwks.json`` as it is served. The same keys give the same bytes."""
    ring.forget()
    keys = [key for key in SigningKey.objects.order_by("kid") if key.verifies(at=now)]
    files = {f"{key.kid}.pem": key.public_pem.encode() for key in keys}
    files["jwks.json"], _ = ring.jwks(now=now)
    return files


def _made() -> dict[str, Any]:
    """A new key pair, as its row holds it."""
    private = generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    public = private.public_key()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {
        "kid": thumbprint(public),
        "public_pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
        "private_key": encrypt(pem),
    }


def _lock_keys() -> None:
    """One rotation at a time; the rows cannot be locked where there are none yet."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('accounts.signing_keys'))")


def thumbprint(key: RSAPublicKey) -> str:
    """The RFC 7638 thumbprint: base64url of SHA-256 over the required members in lexical order."""
    jwk = RSAAlgorithm.to_jwk(key, as_dict=True)
    canonical = dumps({name: jwk[name] for name in ("e", "kty", "n")}, separators=(",", ":"))
    return urlsafe_b64encode(sha256(canonical.encode()).digest()).rstrip(b"=").decode()
