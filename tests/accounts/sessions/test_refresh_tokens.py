"""Refresh tokens as people hold them."""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.sessions.refresh_tokens import RefreshSecret


@given(st.binary(min_size=32, max_size=32))
def test_text_and_bytes_are_one(raw: bytes) -> None:
    secret = RefreshSecret(raw)
    assert len(secret.text()) == 43
    assert RefreshSecret.parse(secret.text()) == secret
    assert secret.id.bytes == raw[:16]


@given(st.text(max_size=60))
def test_nothing_else_is_a_token(text: str) -> None:
    parsed = RefreshSecret.parse(text)
    assert parsed is None or parsed.text() == text.strip()


def test_the_spare_bits_of_the_last_character_must_be_zero() -> None:
    text = urlsafe_b64encode(bytes(32)).rstrip(b"=").decode()
    assert RefreshSecret.parse(text) is not None
    assert RefreshSecret.parse(text[:-1] + "B") is None


def test_only_the_whole_token_matches() -> None:
    secret = RefreshSecret.new()
    same_id = RefreshSecret(secret.raw[:16] + bytes(16))
    assert secret.matches(secret.hash())
    assert not same_id.matches(secret.hash())
    assert not secret.matches("not a hash")


def test_a_token_is_not_shown() -> None:
    secret = RefreshSecret.new()
    assert secret.text() not in repr(secret)
    assert repr(secret.raw) not in repr(secret)


@pytest.mark.parametrize("text", ["", "a" * 42, "a" * 44, "=" * 43, "é" * 43, "\x00" * 43])
def test_odd_texts_are_refused(text: str) -> None:
    assert RefreshSecret.parse(text) is None
