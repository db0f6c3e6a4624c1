"""Encryption at rest under rotating keys: the newest key encrypts, all keys decrypt.

``ENCRYPTION_KEYS`` holds Fernet keys (32 random bytes, base64url), newest first. Fernet is AES-128-CBC with
HMAC-SHA-256 (https://github.com/fernet/spec).
"""

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings


class CannotDecrypt(Exception):
    """The value was altered, or encrypted under a key that ``ENCRYPTION_KEYS`` no longer has."""


def encrypt(plain: bytes) -> bytes:
    return _keys().encrypt(plain)


def decrypt(token: bytes) -> bytes:
    try:
        return _keys().decrypt(token)
    except InvalidToken:
        raise CannotDecrypt from None


def is_current(token: bytes) -> bool:
    """Whether a value was encrypted under the newest key."""
    try:
        Fernet(settings.ENCRYPTION_KEYS.listed()[0]).decrypt(token)
    except InvalidToken:
        return False
    return True


def _keys() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in settings.ENCRYPTION_KEYS.listed()])
