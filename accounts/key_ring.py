"""The keys of this process: what signs now, what verifies, and what the world may know of them.

Rows are read at most every ``RELOAD_SECONDS`` and private keys are decrypted once, so that signing and
verifying cost no query. Every host sees a new key within that time, long before it signs.
"""

import threading
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from json import dumps
from time import monotonic
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from django.db import Error as DatabaseError
from jwt.algorithms import RSAAlgorithm

from accounts.models import SigningKey
from config.encryption import decrypt
from config.problems import ServiceUnavailable

RELOAD_SECONDS = 30.0
# An unknown kid may be one that another host has just made; asked for no more often than this.
RELOAD_FOR_UNKNOWN_SECONDS = 0.5
# After the database could not be read.
PAUSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Entry:
    row: SigningKey
    public: RSAPublicKey


class KeyRing:
    """All signing keys, by ``kid``. Safe to share between threads: a reload replaces the whole set."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._private: dict[str, RSAPrivateKey] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def signer(self, *, now: datetime) -> tuple[str, RSAPrivateKey]:
        """The ``kid`` and key that sign at ``now``: the newest whose time has come."""
        self._refresh(RELOAD_SECONDS)
        ready = [
            entry.row
            for entry in self._entries.values()
            if entry.row.signs_from <= now and entry.row.revoked_at is None
        ]
        if not ready:
            raise ServiceUnavailable("No key can sign access tokens; an operator must make one.")
        row = max(ready, key=lambda each: each.signs_from)
        if row.kid not in self._private:
            key = load_pem_private_key(decrypt(bytes(row.private_key)), password=None)
            assert isinstance(key, RSAPrivateKey)
            self._private[row.kid] = key
        return row.kid, self._private[row.kid]

    def verifier(self, kid: str, *, now: datetime) -> RSAPublicKey | None:
        """The public key named ``kid``, or None where no key of that name verifies at ``now``."""
        self._refresh(RELOAD_SECONDS)
        if kid not in self._entries:
            self._refresh(RELOAD_FOR_UNKNOWN_SECONDS)
        entry = self._entries.get(kid)
        return entry.public if entry and entry.row.verifies(at=now) else None

    def jwks(self, *, now: datetime) -> tuple[bytes, str]:
        """The RFC 7517 document of every key a verifier should know, and its entity tag."""
        self._refresh(RELOAD_SECONDS)
        keys = [
            _jwk(kid, entry.public)
            for kid, entry in sorted(self._entries.items())
            if entry.row.verifies(at=now)
        ]
        body = dumps({"keys": keys}).encode()
        return body, f'"{sha256(body).hexdigest()[:32]}"'

    def forget(self) -> None:
        """Makes the next use read the rows again."""
        self._read_at = float("-inf")

    def _refresh(self, older_than: float) -> None:
        if monotonic() - self._read_at < older_than:
            return
        # Whoever knows keys goes on with them while another reads.
        if not self._lock.acquire(blocking=not self._entries):
            return
        try:
            if monotonic() - self._read_at >= older_than:
                self._read()
        finally:
            self._lock.release()

    def _read(self) -> None:
        try:
            rows = list(SigningKey.objects.filter(revoked_at=None))
        except DatabaseError:
            # A database that is away must not cost a known key its use, nor each request a wait.
            if not self._entries:
                raise
            self._read_at = monotonic() - RELOAD_SECONDS + PAUSE_SECONDS
            return
        self._entries = {row.kid: _Entry(row, _public(row.public_pem)) for row in rows}
        self._read_at = monotonic()


def _public(pem: str) -> RSAPublicKey:
    key = load_pem_public_key(pem.encode())
    assert isinstance(key, RSAPublicKey)
    return key


def _jwk(kid: str, key: RSAPublicKey) -> dict[str, Any]:
    jwk = RSAAlgorithm.to_jwk(key, as_dict=True)
    return {
        "kty": jwk["kty"],
        "kid": kid,
        "use": "sig",
        "alg": "RS256",
        "n": jwk["n"],
        "e": jwk["e"],
    }


ring = KeyRing()
