"""Encryption at rest under rotating keys: the newest key encrypts, all keys decrypt.

Each value is bound to the row and column that it was encrypted for, and decrypts nowhere else: write access to rows is
not enough to give one person's tokens to another. It is AES-256-GCM under a key derived from the newest of
``ENCRYPTION_KEYS``, with the place as associated data. Values of earlier releases are Fernet tokens under these keys,
bound to nothing; they are read until they are renewed.
"""

import secrets
from functools import lru_cache
from typing import ClassVar

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

# The first byte of a bound value; a Fernet token begins with a letter.
BOUND = b"\x01"
NONCE = 12


class CannotDecrypt(Exception):
    """The value was altered or moved, or its key is no longer in ``ENCRYPTION_KEYS``."""


def encrypt(plain: bytes, *, place: str) -> bytes:
    nonce = secrets.token_bytes(NONCE)
    return BOUND + nonce + _cipher(_keys()[0]).encrypt(nonce, plain, place.encode())


def decrypt(value: bytes, *, place: str) -> bytes:
    if not value.startswith(BOUND):
        return _decrypt_unbound(value)
    for key in _keys():
        if (plain := _opened(value, key, place)) is not None:
            return plain
    raise CannotDecrypt


class Sealed:
    """A row with encrypted columns, which are bound to its table, the column and the fields named by ``bound_to``."""

    bound_to: ClassVar[tuple[str, ...]]

    def place(self, column: str) -> str:
        table = self._meta.db_table  # type: ignore[attr-defined]  # Django's documented API
        return " ".join(
            [f"{table}.{column}", *(str(getattr(self, name)) for name in self.bound_to)]
        )

    def seal(self, column: str, plain: bytes) -> None:
        setattr(self, column, encrypt(plain, place=self.place(column)))

    def unseal(self, column: str) -> bytes:
        """Raises ``CannotDecrypt``."""
        return decrypt(bytes(getattr(self, column)), place=self.place(column))


def renewed(value: bytes, *, place: str) -> bytes | None:
    """Returns the value under the newest key, bound to its place; None if it is already. Raises ``CannotDecrypt``."""
    if value.startswith(BOUND) and _opened(value, _keys()[0], place) is not None:
        return None
    return encrypt(decrypt(value, place=place), place=place)


def _opened(value: bytes, key: str, place: str) -> bytes | None:
    start = len(BOUND) + NONCE
    try:
        return _cipher(key).decrypt(value[len(BOUND) : start], value[start:], place.encode())
    except (InvalidTag, ValueError):
        return None


def _decrypt_unbound(value: bytes) -> bytes:
    try:
        return MultiFernet([Fernet(key) for key in _keys()]).decrypt(value)
    except InvalidToken:
        raise CannotDecrypt from None


def _keys() -> list[str]:
    return settings.ENCRYPTION_KEYS.listed()


@lru_cache(maxsize=8)
def _cipher(key: str) -> AESGCM:
    # Separate from Fernet's use of the same key.
    derive = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"bound to a row and column")
    return AESGCM(derive.derive(key.encode()))
