"""The text of a personal key: ``sk-shell-`` and 58 letters and digits, which anybody can check without this service.

Base32 (RFC 4648, small letters, no padding) of 32 random bytes and their CRC-32, so a scanner knows a key from any
other text. ``docs/callers.md`` describes it to scanners.
"""

import re
from base64 import b32decode, b32encode
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_bytes
from typing import Self
from zlib import crc32

PREFIX = "sk-shell-"
PATTERN = re.compile(rf"{PREFIX}([a-z2-7]{{58}})", re.ASCII)
SIZE = 32
# Base32 is decoded in groups of eight.
_PADDING = "=" * 6


@dataclass(frozen=True, slots=True)
class KeyText:
    """The random bytes of a key."""

    random: bytes = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        return cls(token_bytes(SIZE))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The key of a text, or None if it is not exactly one with a right checksum."""
        match = PATTERN.fullmatch(text)
        if match is None:
            return None
        key = cls(b32decode(f"{match[1].upper()}{_PADDING}")[:SIZE])
        return key if key.text == text else None

    @property
    def text(self) -> str:
        checked = self.random + crc32(self.random).to_bytes(4)
        return f"{PREFIX}{b32encode(checked).decode().rstrip('=').lower()}"

    @property
    def hashed(self) -> bytes:
        return sha256(self.random).digest()
