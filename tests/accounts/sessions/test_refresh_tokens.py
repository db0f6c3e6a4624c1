"""Refresh tokens as people hold them."""

import os
from base64 import urlsafe_b64encode
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.sessions import refresh_tokens
from accounts.sessions.refresh_tokens import RefreshSecret, Remembered


@given(st.binary(min_size=32, max_size=32))
def test_text_and_bytes_are_one(raw: bytes) -> None:
    secret = RefreshSecret(raw)
    assert len(secret.text()) == 43
    assert RefreshSecret.parse(secret.text()) == secret
    assert secret.id.bytes == raw[:16]


@given(st.text(max_size=60))
def test_nothing_else_is_a_token(text: str) -> None:
    parsed = RefreshSecret.parse(text)
    assert parsed is None or parsed.text() == text


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


@pytest.fixture
def hasher(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The real one, watched, in a process that has made no token yet."""
    watched = Mock(wraps=refresh_tokens.TOKEN_HASHER)
    monkeypatch.setattr(refresh_tokens, "TOKEN_HASHER", watched)
    monkeypatch.setattr(refresh_tokens, "_made", Remembered(refresh_tokens.REMEMBERED))
    return watched


def test_a_token_of_this_process_is_known_again_once(hasher: Mock) -> None:
    secret = RefreshSecret.new()
    made = secret.hash()
    assert secret.matches(made)
    assert not hasher.verify.called
    assert secret.matches(made)
    assert hasher.verify.call_count == 1, "what is used is remembered no longer"


def test_what_is_remembered_is_no_key_to_another_record(hasher: Mock) -> None:
    secret, other = RefreshSecret.new(), RefreshSecret.new()
    secret.hash()
    assert not secret.matches(other.hash())
    same_id = RefreshSecret(other.raw[:16] + secret.raw[16:])
    assert not same_id.matches(other.hash())
    assert hasher.verify.call_count == 2


def test_only_so_many_are_remembered(hasher: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh_tokens, "_made", Remembered(1))
    made = [(secret, secret.hash()) for secret in (RefreshSecret.new() for _ in range(3))]
    assert all(secret.matches(hashed) for secret, hashed in reversed(made))
    assert hasher.verify.call_count == 2, "all but the last are computed"


def test_a_token_of_another_worker_is_known_as_well() -> None:
    remembered, digest = Remembered(8), bytes(range(32))
    child = os.fork()
    if child == 0:
        remembered.keep(digest, "made there")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert remembered.take(digest) == "made there"
    assert remembered.take(digest) is None, "here or there, once"


@pytest.mark.parametrize("kept", [bytes(range(32)), bytes(32), bytes(range(31)) + b"x"])
def test_what_was_made_of_another_token_is_not_given(kept: bytes) -> None:
    remembered = Remembered(1)
    remembered.keep(kept, "made")
    assert remembered.take(bytes(range(1, 33))) is None
