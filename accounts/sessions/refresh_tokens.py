"""Refresh tokens as people hold them: 32 random bytes, of which the first 16 name the record.

A token is found by primary key and never by trying hashes; argon2id over all 32 bytes then says whether
it is the real one. Nothing is hashed for an id that is unknown.
"""

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass, field
from hashlib import sha256
from mmap import mmap
from typing import Self
from uuid import UUID

from argon2.exceptions import InvalidHashError, VerificationError

from accounts.hashers import TOKEN_HASHER
from config.ahead import Ahead

SIZE = 32
TEXT_LENGTH = 43
# A hash as it is written takes no more (RefreshToken.token_hash).
HASH_LENGTH = 128
DIGEST_LENGTH = 32
REMEMBERED = 8192
READY = 32


class Remembered:
    """What argon2id gave for tokens that were made here, so that it is not computed again when they come back.

    By digests, so that nobody's token lies in memory; until it is used, or its place is taken by another. All
    processes that are forked from the one that made this share it: a client comes back to any of them. They need no
    lock: half of what one wrote and half of what another did is never both the digest of a token and its hash.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._kept = mmap(-1, places * (DIGEST_LENGTH + HASH_LENGTH))

    def keep(self, digest: bytes, made: str) -> None:
        self._kept[self._place(digest)] = digest + made.encode().ljust(HASH_LENGTH)

    def take(self, digest: bytes) -> str | None:
        """What was kept, once."""
        place = self._place(digest)
        kept = self._kept[place]
        if not kept.startswith(digest):
            return None
        self._kept[place] = bytes(len(kept))
        return kept[DIGEST_LENGTH:].rstrip().decode()

    def _place(self, digest: bytes) -> slice:
        size = DIGEST_LENGTH + HASH_LENGTH
        start = int.from_bytes(digest[:8]) % self._places * size
        return slice(start, start + size)


# Some 1.3 MB when full, of which no page is there before it is used.
_made = Remembered(REMEMBERED)


@dataclass(frozen=True, slots=True)
class RefreshSecret:
    """The bytes of a token. Kept only for the length of a call, and never shown by ``repr``."""

    raw: bytes = field(repr=False)
    # What argon2id gave for them, where it was asked beforehand.
    hashed: str | None = field(default=None, repr=False, compare=False)

    @classmethod
    def new(cls) -> "RefreshSecret":
        """A token that nobody has yet, with its hash: of those that lie ready, if there are any."""
        return _new.take()

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The token that ``text`` writes, or None.

        Only the one canonical writing counts: 43 characters carry two spare bits.
        """
        if len(text) != TEXT_LENGTH:
            return None
        try:
            raw = urlsafe_b64decode(text + "=")
        except (NotBase64, ValueError):
            return None
        token = cls(raw)
        return token if token.text() == text else None

    def text(self) -> str:
        return urlsafe_b64encode(self.raw).rstrip(b"=").decode()

    @property
    def id(self) -> UUID:
        return UUID(bytes=self.raw[:16])

    def hash(self) -> str:
        made = self.hashed or TOKEN_HASHER.hash(self.raw)
        _made.keep(sha256(self.raw).digest(), made)
        return made

    def matches(self, token_hash: str) -> bool:
        if _made.take(sha256(self.raw).digest()) == token_hash:
            return True
        try:
            return TOKEN_HASHER.verify(token_hash, self.raw)
        except (VerificationError, InvalidHashError):
            return False


def _hashed() -> RefreshSecret:
    raw = secrets.token_bytes(SIZE)
    return RefreshSecret(raw, TOKEN_HASHER.hash(raw))


_new = Ahead(_hashed, ready=READY)
