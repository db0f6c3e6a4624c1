"""Making and rotating the keys that sign access tokens."""

from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from hashlib import sha256
from json import dumps

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
from accounts.key_ring import ring
from accounts.models import SigningKey
from config.encryption import encrypt

KEY_BITS = 2048


def rotate_signing_key(*, publish_ahead: timedelta, by: Actor, now: datetime) -> SigningKey:
    """Makes a key that is published now and signs after ``publish_ahead``; the one before stops signing then."""
    private = generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    signs_from = now + publish_ahead
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = private.public_key()
    with transaction.atomic():
        SigningKey.objects.filter(superseded_at=None, revoked_at=None).update(
            superseded_at=signs_from
        )
        key = SigningKey.objects.create(
            kid=thumbprint(public),
            public_pem=public.public_bytes(
                Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
            ).decode(),
            private_key=encrypt(pem),
            published_at=now,
            signs_from=signs_from,
        )
        record("signing_key:made", by=by, now=now, target=key.kid, target_id=key.kid)
    ring.forget()
    return key


def thumbprint(key: RSAPublicKey) -> str:
    """The RFC 7638 thumbprint: base64url of SHA-256 over the required members in lexical order."""
    jwk = RSAAlgorithm.to_jwk(key, as_dict=True)
    canonical = dumps({name: jwk[name] for name in ("e", "kty", "n")}, separators=(",", ":"))
    return urlsafe_b64encode(sha256(canonical.encode()).digest()).rstrip(b"=").decode()
