"""The key ring of a process: the key that signs, the keys that verify, and their public list.

Rows are read at most every ``RELOAD_SECONDS`` and private keys are decrypted once, so that signing, verifying
and publishing cost no query. Every process sees a new key within that time, before it signs. A thread reads the rows,
so that a slow or absent database delays no request that the known keys can serve.
"""

import math
import re
import threading
from contextlib import suppress
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
from config.platform.db.connections import release_connection
from config.platform.problems.problem import ServiceUnavailable

RELOAD_SECONDS = 5.0
# The shortest time between two readings on account of unknown kids, and before the next after a failed reading.
RELOAD_FOR_UNKNOWN_SECONDS = 0.5
# The wait of a request for the reading that it starts, which usually takes milliseconds.
WAIT_SECONDS = 0.5
# Rows that were read longer ago neither sign nor verify. Less than the 40 s before a new key signs, and long enough
# that one failed reading, of 17 s at most (5 s for a connection, 12 s for an answer), costs no request anything.
BELIEVED_SECONDS = 30.0
KID = re.compile(r"[\w-]{43}", re.ASCII)


def read_rows() -> list[SigningKey]:
    """Reads every key there is."""
    return list(SigningKey.objects.all())


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
        self._waited_until = float("-inf")
        self.forget()

    def signer(self, *, now: datetime) -> tuple[str, RSAPrivateKey]:
        """The ``kid`` and key that sign at ``now``: the newest whose time has come."""
        self._refresh()
        rows = (entry.row for entry in self._entries.values())
        ready = [row for row in rows if row.stage(at=now) == Stage.SIGNING]
        if not ready:
            raise ServiceUnavailable("No key can sign access tokens; an operator must create one.")
        row = max(ready, key=lambda each: each.signs_from)
        private = self._private.get(row.kid)
        if private is None:
            key = load_pem_private_key(row.unseal("private_key"), password=None)
            assert isinstance(key, RSAPrivateKey)
            private = self._private[row.kid] = key
        return row.kid, private

    def verifier(self, kid: str, *, now: datetime) -> RSAPublicKey | None:
        """The public key named ``kid``, or None where no key of that name verifies at ``now``.

        An unknown name makes the ring read the rows: after an emergency another process may sign with a key that
        is younger than the last reading.
        """
        self._refresh()
        if kid not in self._entries and KID.fullmatch(kid):
            self._read_since(monotonic())
        entry = self._entries.get(kid)
        return entry.public if entry and entry.row.verifies(at=now) else None

    def jwks(self, *, now: datetime) -> tuple[bytes, str]:
        """The RFC 7517 document of every key a verifier should know, and its entity tag."""
        # The list grants no access, and an old one is better than none.
        self._refresh(believed=math.inf)
        unseen = {Stage.PLANNED, Stage.RETIRED}
        keys = [
            entry.jwk
            for _, entry in sorted(self._entries.items())
            if entry.row.stage(at=now) not in unseen
        ]
        body = dumps({"keys": keys}).encode()
        return body, f'"{sha256(body).hexdigest()[:32]}"'

    def forget(self) -> None:
        """Makes the next use read the rows and wait for them."""
        # When the last successful reading began; and the same, or the end of the last reading if that failed.
        self._read_at = self._tried_at = float("-inf")

    def _refresh(self, *, believed: float = BELIEVED_SECONDS) -> None:
        """Starts a reading that is due, waits for it for a moment, and goes on with the known rows.

        Waits to its end if the known rows are ``believed`` seconds old; raises as ``_read_since`` does.
        """
        if not self._entries or monotonic() - self._read_at >= believed:
            young = RELOAD_SECONDS if self._entries else RELOAD_FOR_UNKNOWN_SECONDS
            self._read_since(monotonic() - young)
        elif not self._is_due():
            return
        elif not self._lock.acquire(blocking=False):
            # As long as the request that started it: neither may believe a key that an emergency has ended.
            left = self._waited_until - monotonic()
            if left > 0 and self._lock.acquire(timeout=left):
                self._lock.release()
        elif connection.in_atomic_block:
            # A fault that ends the transaction must not go unnoticed.
            try:
                self._read()
            finally:
                self._lock.release()
        else:
            self._have_read()

    def _read_since(self, since: float) -> None:
        """Waits for a reading that began after that moment: a key is committed before it signs.

        Raises database errors, and ``ServiceUnavailable`` if a reading has failed just now.
        """
        with self._lock:
            if self._read_at > since:
                return
            pause = RELOAD_FOR_UNKNOWN_SECONDS - self._age()
            if pause > 0:
                if self._has_failed():
                    # The requests that waited for that reading would each wait again, one after another.
                    raise ServiceUnavailable
                sleep(pause)
            self._read()

    def _is_due(self) -> bool:
        pause = RELOAD_FOR_UNKNOWN_SECONDS if self._has_failed() else RELOAD_SECONDS
        return self._age() >= pause

    def _has_failed(self) -> bool:
        return self._tried_at > self._read_at

    def _age(self) -> float:
        """Seconds since the last reading, or failed reading."""
        return monotonic() - self._tried_at

    def _have_read(self) -> None:
        """Starts a reading in a thread, which releases the lock, and waits for it for a moment."""
        self._waited_until = monotonic() + WAIT_SECONDS
        ended = threading.Event()
        thread = threading.Thread(target=self._read_beside, args=(ended,), name="keys", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # No more threads just now.
            self._lock.release()
        else:
            ended.wait(WAIT_SECONDS)

    def _read_beside(self, ended: threading.Event) -> None:
        try:
            # A database that is away must not cost a known key its use.
            with suppress(DatabaseError):
                self._read()
        finally:
            release_connection()
            self._lock.release()
            ended.set()

    def _read(self) -> None:
        began = monotonic()
        try:
            rows = read_rows()
            self._entries = {row.kid: self._entry(row) for row in rows}
        except BaseException:
            # Its end, because a failed connection alone takes 5 s.
            self._tried_at = monotonic()
            raise
        voided = {row.kid for row in rows if row.revoked_at is not None}
        self._private = {kid: key for kid, key in self._private.items() if kid not in voided}
        self._read_at = self._tried_at = began

    def _entry(self, row: SigningKey) -> _Entry:
        """Returns the entry of a row; the public half never changes and is parsed once."""
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
