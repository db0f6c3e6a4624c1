"""A lost answer must not sign a person out: the same token with the same key gets the same successor again.

The successor is kept only in a box that nobody here can open: its key is derived from the presented token, of
which this side has but a hash, together with the caller's ``Idempotency-Key`` and device. Another key, another
device or another token does not open it, and then it is reuse.
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
from config.api.problems import Fault, InvalidRequest

LIFETIME = timedelta(hours=24)
SHORTEST_KEY = 22
LONGEST_KEY = 64
KEY = re.compile(rf"[!-~]{{{SHORTEST_KEY},{LONGEST_KEY}}}")
NONCE = 12


def checked_key(key: str | None) -> str | None:
    """A caller's ``Idempotency-Key``; raises ``InvalidRequest`` for one that is too short to be random or too long."""
    if key is not None and not KEY.fullmatch(key):
        detail = f"Idempotency-Key takes {SHORTEST_KEY} to {LONGEST_KEY} printable ASCII characters without spaces."
        raise InvalidRequest(detail, errors=[Fault("/Idempotency-Key", "invalid", detail)])
    return key


def seal(successor: RefreshSecret, *, presented: RefreshSecret, key: str, device: str) -> bytes:
    """The box that only the same token, key and device open again (AES-256-GCM under HKDF-SHA-256)."""
    nonce = secrets.token_bytes(NONCE)
    return nonce + _cipher(presented, key, device).encrypt(nonce, successor.raw, presented.id.bytes)


def unseal(box: bytes, *, presented: RefreshSecret, key: str, device: str) -> RefreshSecret | None:
    """The successor in a box, or None where this is not the retry it was kept for."""
    cipher = _cipher(presented, key, device)
    try:
        return RefreshSecret(cipher.decrypt(box[:NONCE], box[NONCE:], presented.id.bytes))
    except InvalidTag:
        return None


def wipe_expired(*, now: datetime) -> int:
    """Empties boxes that have had their 24 hours, or whose session has had its time; gives how many."""
    over = Q(replaced_at__lte=now - LIFETIME) | Q(session__expires_at__lte=now)
    return RefreshToken.objects.filter(over, retry_box__isnull=False).update(retry_box=None)


def _cipher(presented: RefreshSecret, key: str, device: str) -> AESGCM:
    # The parts are told apart by their lengths: a key has no end mark of its own.
    info = (
        b"refresh retry\0" + len(key).to_bytes(2) + key.encode() + device.encode("utf-8", "replace")
    )
    derive = HKDF(algorithm=SHA256(), length=32, salt=presented.id.bytes, info=info)
    return AESGCM(derive.derive(presented.raw))
