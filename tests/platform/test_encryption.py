"""A value opens at its place, under any of the keys, and nowhere else."""

from typing import Any

import pytest
from cryptography.fernet import Fernet

from config.platform.encryption import CannotDecrypt, decrypt, encrypt, renewed

HERE, THERE = "table.column 1", "table.column 2"


class Keys:
    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def listed(self) -> list[str]:
        return list(self.keys)


def new_key() -> str:
    return Fernet.generate_key().decode()


def test_a_sealed_value_opens_only_in_its_row_and_column() -> None:
    value = encrypt(b"secret", place=HERE)
    assert decrypt(value, place=HERE) == b"secret"
    assert encrypt(b"secret", place=HERE) != value
    with pytest.raises(CannotDecrypt):
        decrypt(value, place=THERE)
    with pytest.raises(CannotDecrypt):
        renewed(value, place=THERE)


@pytest.mark.parametrize("at", [0, 1, 13, -1])
def test_a_sealed_value_opens_only_if_unaltered(at: int) -> None:
    value = bytearray(encrypt(b"secret", place=HERE))
    value[at] ^= 1
    with pytest.raises(CannotDecrypt):
        decrypt(bytes(value), place=HERE)


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x01short", b"gAAAA", b"\xff"])
def test_a_value_that_is_none_of_ours_does_not_open(value: bytes) -> None:
    with pytest.raises(CannotDecrypt):
        decrypt(value, place=HERE)


def test_keys_rotate(settings: Any) -> None:
    old, new = new_key(), new_key()
    settings.ENCRYPTION_KEYS = Keys(old)
    value = encrypt(b"secret", place=HERE)
    assert renewed(value, place=HERE) is None
    settings.ENCRYPTION_KEYS = Keys(new, old)
    assert decrypt(value, place=HERE) == b"secret"
    fresh = renewed(value, place=HERE)
    settings.ENCRYPTION_KEYS = Keys(new)
    assert fresh is not None
    assert decrypt(fresh, place=HERE) == b"secret"
    with pytest.raises(CannotDecrypt):
        decrypt(value, place=HERE)


def test_a_value_of_an_earlier_release_is_read_and_due_for_renewal(settings: Any) -> None:
    key = new_key()
    settings.ENCRYPTION_KEYS = Keys(new_key(), key)
    value = Fernet(key).encrypt(b"secret")
    assert decrypt(value, place=HERE) == b"secret"
    fresh = renewed(value, place=HERE)
    assert fresh is not None
    assert decrypt(fresh, place=HERE) == b"secret"
    settings.ENCRYPTION_KEYS = Keys(new_key())
    with pytest.raises(CannotDecrypt):
        decrypt(value, place=HERE)
