"""The keys of this process: what signs now, what verifies, and what the world may know of them.

Rows are read at most every ``RELOAD_SECONDS`` and private keys are decrypted once, so that signing, verifying
and publishing cost no query. Every process sees a new key within that time, before it signs.
"""

import re
import threading
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from json import dumps
from time import monotonic, sleep
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from django.db import Error as DatabaseError
from django.db import connection
from jwt.algorithms import RSAAlgorithm

from accounts.models import SigningKey
from accounts.models.keys import Stage
from config.encryption import decrypt
from config.problems import ServiceUnavailable

RELOAD_SECONDS = 5.0
# However many strangers' kids are presented, rows are read no more often than this on their account.
RELOAD_FOR_UNKNOWN_SECONDS = 0.5
KID = re.compile(r"[\w-]{43}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Entry:
    row: SigningKey
    public: RSAPublicKey
    jwk: dict[str, str]


class KeyRing:
    """All signing keys, by ``kid``. Safe to share between threads: a reload replaces the whole set."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._private: dict[str, RSAPrivateKey] = {}
        self._lock = threading.Lock()
        self.forget()

    def signer(self, *, now: datetime) -> tuple[str, RSAPrivateKey]:
        """The ``kid`` and key that sign at ``now``: the newest whose time has come."""
        self._refresh()
        rows = (entry.row for entry in self._entries.values())
        ready = [row for row in rows if row.stage(at=now) == Stage.SIGNING]
        if not ready:
            raise ServiceUnavailable("No key can sign access tokens; an operator must make one.")
        row = max(ready, key=lambda each: each.signs_from)
        private = self._private.get(row.kid)
        if private is None:
            key = load_pem_private_key(decrypt(bytes(row.private_key)), password=None)
            assert isinstance(key, RSAPrivateKey)
            private = self._private[row.kid] = key
        return row.kid, private

    def verifier(self, kid: str, *, now: datetime) -> RSAPublicKey | None:
        """The public key named ``kid``, or None where no key of that name verifies at ``now``.

        A name that this process has never heard of is looked for in the rows: after an emergency another
        process may sign with a key that is younger than what is known here.
        """
        self._refresh()
        if kid not in self._entries and KID.fullmatch(kid):
            self._read_after(monotonic())
        entry = self._entries.get(kid)
        return entry.public if entry and entry.row.verifies(at=now) else None

    def jwks(self, *, now: datetime) -> tuple[bytes, str]:
        """The RFC 7517 document of every key a verifier should know, and its entity tag."""
        self._refresh()
        unseen = {Stage.PLANNED, Stage.RETIRED}
        keys = [
            entry.jwk
            for _, entry in sorted(self._entries.items())
            if entry.row.stage(at=now) not in unseen
        ]
        body = dumps({"keys": keys}).encode()
        return body, f'"{sha256(body).hexdigest()[:32]}"'

    def forget(self) -> None:
        """Makes the next use read the rows again."""
        # When reading was last tried, and when the last reading began that succeeded.
        self._tried_at = self._read_at = float("-inf")

    def _refresh(self) -> None:
        if self._entries and self._age() < RELOAD_SECONDS:
            return
        # Whoever knows keys goes on with them while another reads.
        if not self._lock.acquire(blocking=not self._entries):
            return
        try:
            if self._age() >= (RELOAD_SECONDS if self._entries else RELOAD_FOR_UNKNOWN_SECONDS):
                self._read()
        except DatabaseError:
            # A database that is away must not cost a known key its use. Inside a transaction, though, the
            # fault has ended that, which must not go unnoticed.
            if not self._entries or connection.in_atomic_block:
                raise
        finally:
            self._lock.release()

    def _read_after(self, asked: float) -> None:
        """Waits for rows whose reading began after somebody asked: a key is committed before it signs."""
        with self._lock:
            if self._read_at > asked:
                return
            sleep(max(0.0, RELOAD_FOR_UNKNOWN_SECONDS - self._age()))
            self._read()

    def _age(self) -> float:
        """Seconds since rows were last asked for."""
        return monotonic() - self._tried_at

    def _read(self) -> None:
        began = self._tried_at = monotonic()
        rows = list(SigningKey.objects.all())
        self._entries = {row.kid: self._entry(row) for row in rows}
        voided = {row.kid for row in rows if row.revoked_at is not None}
        self._private = {kid: key for kid, key in self._private.items() if kid not in voided}
        self._read_at = began

    def _entry(self, row: SigningKey) -> _Entry:
        """What is known of a row; its public half never changes and is read once."""
        known = self._entries.get(row.kid)
        if known is not None:
            return _Entry(row, known.public, known.jwk)
        public = load_pem_public_key(row.public_pem.encode())
        assert isinstance(public, RSAPublicKey)
        return _Entry(row, public, _jwk(row.kid, public))


def _jwk(kid: str, key: RSAPublicKey) -> dict[str, str]:
    jwk: dict[str, Any] = RSAAlgorithm.to_jwk(key, as_dict=True)
    return {
        "kty": jwk["kty"],
        "kid": kid,
        "use": "sig",
        "alg": "RS256",
        "n": jwk["n"],
        "e": jwk["e"],
    }


ring = KeyRing()
