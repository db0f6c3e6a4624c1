"""Retries of a refresh whose answer was lost: the same token and ``Idempotency-Key`` get the same successor again.

The successor is stored encrypted. The encryption key is derived from the presented token, of which the server
stores only a hash, the ``Idempotency-Key`` and the device. A use with another token, key or device is reuse.
"""

import re
import secrets
from datetime import datetime, timedelta

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.db.models import Q

from accounts.models import RefreshToken
from accounts.sessions.refresh_tokens import RefreshSecret
from config.platform.problems.problem import Fault, InvalidRequest

LIFETIME = timedelta(hours=24)
SHORTEST_KEY = 22
LONGEST_KEY = 64
KEY = re.compile(rf"[!-~]{{{SHORTEST_KEY},{LONGEST_KEY}}}")
NONCE = 12


def checked_key(key: str | None) -> str | None:
    """A valid ``Idempotency-Key``, or None without one. Raises ``InvalidRequest`` for a key of another form."""
    if key is not None and not KEY.fullmatch(key):
        detail = f"Idempotency-Key must be {SHORTEST_KEY} to {LONGEST_KEY} printable ASCII characters without spaces."
        raise InvalidRequest(detail, errors=[Fault("/Idempotency-Key", "invalid", detail)])
    return key


def seal(successor: RefreshSecret, *, presented: RefreshSecret, key: str, device: str) -> bytes:
    """Encrypts a successor for the same token, key and device (AES-256-GCM under HKDF-SHA-256)."""
    nonce = secrets.token_bytes(NONCE)
    return nonce + _cipher(presented, key, device).encrypt(nonce, successor.raw, presented.id.bytes)


def unseal(box: bytes, *, presented: RefreshSecret, key: str, device: str) -> RefreshSecret | None:
    """Decrypts a successor, or returns None for another token, key or device."""
    cipher = _cipher(presented, key, device)
    try:
        return RefreshSecret(cipher.decrypt(box[:NONCE], box[NONCE:], presented.id.bytes))
    except InvalidTag:
        return None


def wipe_expired(*, now: datetime) -> int:
    """Deletes sealed successors after 24 hours or after the end of their session; returns their number."""
    over = Q(replaced_at__lte=now - LIFETIME) | Q(session__expires_at__lte=now)
    return RefreshToken.objects.filter(over, retry_box__isnull=False).update(retry_box=None)


def _cipher(presented: RefreshSecret, key: str, device: str) -> AESGCM:
    # The length separates the key from the device: the key has no end mark.
    info = (
        b"refresh retry\0" + len(key).to_bytes(2) + key.encode() + device.encode("utf-8", "replace")
    )
    derive = HKDF(algorithm=SHA256(), length=32, salt=presented.id.bytes, info=info)
    return AESGCM(derive.derive(presented.raw))
