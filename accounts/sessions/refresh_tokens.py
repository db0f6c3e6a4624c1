"""Refresh tokens: 32 random bytes, of which the first 16 are the id of the record.

A token is looked up by primary key and then verified by argon2id over all 32 bytes. An unknown id costs no hash.
"""

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass, field
from typing import Self
from uuid import UUID

from accounts.hashers import TOKEN_HASHER, token_matches

SIZE = 32
TEXT_LENGTH = 43


@dataclass(frozen=True, slots=True)
class RefreshSecret:
    """The bytes of a token, held for one call only and hidden from ``repr``."""

    raw: bytes = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        return cls(secrets.token_bytes(SIZE))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The token in ``text``, or None. The encoding must be canonical: 43 characters carry two spare bits.

        Blanks and line breaks around it, as a file or a terminal adds them, are no part of it.
        """
        text = text.strip()
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
        return TOKEN_HASHER.hash(self.raw)

    def matches(self, token_hash: str) -> bool:
        return token_matches(token_hash, self.raw)
