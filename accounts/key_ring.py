"""The keys of this process: what signs now, what verifies, and what the world may know of them.

Rows are read at most every ``RELOAD_SECONDS`` and private keys are decrypted once, so that signing, verifying
and publishing cost no query. Every process sees a new key within that time, before it signs. They are read beside
the requests, so that a database that is away or slow holds up nobody who can do with the keys that are known.
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
from django.db import DEFAULT_DB_ALIAS
from django.db import Error as DatabaseError
from jwt.algorithms import RSAAlgorithm

from accounts.models import SigningKey
from accounts.models.keys import Stage
from config.database import own_connection, prepared
from config.encryption import decrypt
from config.problems import ServiceUnavailable

RELOAD_SECONDS = 5.0
# However many strangers' kids are presented, rows are read no more often than this on their account. So long after a
# reading that failed comes the next.
RELOAD_FOR_UNKNOWN_SECONDS = 0.5
# How long the request that has rows read waits for them, which takes milliseconds as a rule.
WAIT_SECONDS = 0.5
# By rows that were read longer ago nobody signs or verifies. Less than the 40 s before a new key signs, yet so long
# that one reading that fails, after 17 s at most (5 s for a connection, 12 s for an answer), costs nobody anything.
BELIEVED_SECONDS = 30.0
KID = re.compile(r"[\w-]{43}", re.ASCII)


_NAMES = [field.attname for field in SigningKey._meta.concrete_fields]  # noqa: SLF001 - Django's documented API
_ROWS = f"SELECT {', '.join(_NAMES)} FROM accounts_signingkey"  # noqa: S608 - names of columns


def read_rows() -> list[SigningKey]:
    """Every key there is. In a thread without a connection of its own none is made, which would be garbage."""
    with prepared() as cursor:
        cursor.execute(_ROWS)
        return [SigningKey.from_db(DEFAULT_DB_ALIAS, _NAMES, row) for row in cursor.fetchall()]


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
            self._read_since(monotonic())
        entry = self._entries.get(kid)
        return entry.public if entry and entry.row.verifies(at=now) else None

    def jwks(self, *, now: datetime) -> tuple[bytes, str]:
        """The RFC 7517 document of every key a verifier should know, and its entity tag."""
        # It lets nobody in, and an old list is better than none.
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
        """Makes the next use read the rows again, and wait for them."""
        # When the last reading began that succeeded; and the same, or when the last one ended if that has failed.
        self._read_at = self._tried_at = float("-inf")

    def _refresh(self, *, believed: float = BELIEVED_SECONDS) -> None:
        """Has the rows read where that is due, and waits for the first moment of that; then goes on with those known.

        Everybody waits where those known were read ``believed`` seconds ago; raises what ``_read_since`` does.
        """
        if not self._entries or monotonic() - self._read_at >= believed:
            young = RELOAD_SECONDS if self._entries else RELOAD_FOR_UNKNOWN_SECONDS
            self._read_since(monotonic() - young)
        elif not self._is_due():
            return
        elif not self._lock.acquire(blocking=False):
            # As long as whoever began it: what an emergency has ended must not be believed beside them.
            left = self._waited_until - monotonic()
            if left > 0 and self._lock.acquire(timeout=left):
                self._lock.release()
        elif (own := own_connection()) and own.in_atomic_block:
            # It has its connection, and a fault that ends the transaction must not go unnoticed.
            try:
                self._read()
            finally:
                self._lock.release()
        else:
            self._have_read()

    def _read_since(self, since: float) -> None:
        """Waits for rows whose reading began after that moment: a key is committed before it signs.

        Raises what the database does, and ``ServiceUnavailable`` where a reading has failed just now.
        """
        with self._lock:
            if self._read_at > since:
                return
            pause = RELOAD_FOR_UNKNOWN_SECONDS - self._age()
            if pause > 0:
                if self._has_failed():
                    # Those who have waited for that one would wait again now, one after another.
                    raise ServiceUnavailable
                sleep(pause)
            self._read()

    def _is_due(self) -> bool:
        pause = RELOAD_FOR_UNKNOWN_SECONDS if self._has_failed() else RELOAD_SECONDS
        return self._age() >= pause

    def _has_failed(self) -> bool:
        return self._tried_at > self._read_at

    def _age(self) -> float:
        """Seconds since rows were last read, or could not be."""
        return monotonic() - self._tried_at

    def _have_read(self) -> None:
        """Begins a reading in a thread, which gives back the lock, and waits for it for a moment."""
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
            self._lock.release()
            ended.set()

    def _read(self) -> None:
        began = monotonic()
        try:
            rows = read_rows()
            self._entries = {row.kid: self._entry(row) for row in rows}
        except BaseException:
            # From its end on: to find out that there is no connection takes 5 s by itself.
            self._tried_at = monotonic()
            raise
        voided = {row.kid for row in rows if row.revoked_at is not None}
        self._private = {kid: key for kid, key in self._private.items() if kid not in voided}
        self._read_at = self._tried_at = began

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
