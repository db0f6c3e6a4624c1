"""Scrubbing: canaries of every kind are removed, and look-alikes kept."""

from collections.abc import Callable
from json import loads
from typing import Any
from uuid import uuid4

import pytest

from telemetry.scrubbing import scrubbed
from tests.effort import least, takes_at_most
from tests.telemetry.reports import event, read

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl-_x"
REFRESH = "24VL6fw7Rg7a4yMMlNV8pLg1xKb0QeTzUo3dHsJf9Wc"

CANARIES = {
    JWT: "[token]",
    f"Bearer {REFRESH}": "Bearer [token]",
    "bearer abcdefgh": "bearer [token]",
    "Basic dXNlcjpwYXNzd29yZDE=": "Basic [token]",
    REFRESH: "[token]",
    "0123456789abcdef0123456789ABCDEF": "[token]",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08": "[token]",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "[token]",
    "sk-proj-abcdefghijklmnop1234": "[key]",
    "sk-ant-api03-abcdefghijklm": "[key]",
    "sk_live_4eC39HqLyjWDarjtT1": "[key]",
    "AKIAIOSFODNN7EXAMPLE": "[key]",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a": "[key]",
    "xoxb-1234567890-abcdefghij": "[key]",
    "xoxp-1234567890": "[key]",
    "ya29.a0.Ae4lvC.3x": "[key]",
    "whsec_abcd=efgh": "[key]",
    "pk_live_4eC39HqL": "[key]",
    "glpat-abcdefghijklmnop": "[key]",
    "AIzaSyA-1234567890abcdefghijklmnopqrst": "[key]",
    "ada@acme.test": "[email]",
    "ada.lovelace+news@mail.acme.co.uk": "[email]",
    "ada%40acme.test": "[email]",
    "ädä@bücher.example": "[email]",
    "https://user:hunter2@host/path": "https://[secret]@host/path",
    "https://host/p?access_token=abc&x=1": "https://host/p?access_token=[secret]&x=1",
    "password: hunter2": "password: [secret]",
    'body {"refreshToken":"abc", "n": 1}': 'body {"refreshToken":"[secret]", "n": 1}',
    "unexpected password=hunter2": "unexpected password=[secret]",
    "Unexpected auth_token: hunter2hunter2": "Unexpected auth_token: [secret]",
    "unexpected api_key='abcd1234'": "unexpected api_key='[secret]'",
    "unexpected cookie: sid=abc": "unexpected cookie: [secret]",
    "Unexpected token: s3cr3tvalue": "Unexpected token: [secret]",
    "unexpected token=hunter": "unexpected token=[secret]",
    "unexpected token: aBcDeFgH": "unexpected token: [secret]",
    "unexpected token: -hunter2": "unexpected token: [secret]",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----": "[key]",
    "-----BEGIN PRIVATE KEY-----\nMIIBVgIBADANBgkqh": "[key]",
}
HARMLESS = (
    "The document has been opened.",
    "0b5c6f9e-6c5e-4db1-9a3b-0d1f8f0f2e11",
    "0B5C6F9E-6C5E-4DB1-9A3B-0D1F8F0F2E11",
    "2026-11-20T11:59:00.123Z",
    "onboarding-step-verification-code-entered",
    "/Users/Shared/Projects/Shell/src/components/Index.tsx",
    "https://shell.test/docs/index.html?page=2",
    "react@18.2.0",
    "basic functionality of the shell",
    "max_tokens=500",
    "risk-assessment-completed-now",
    "1.2.3-rc.1+build.5",
    "ms: 12; rss = 40",
    "@acme",
    "Unexpected token: }",
    "a token: ] was expected",
    "unexpected token: identifier",
    "Unexpected token: 'END_OF_FILE'",
    "unexpected token: <|im_end|>",
)


@pytest.mark.parametrize("canary", CANARIES)
def test_a_canary_leaves_only_its_mark(canary: str) -> None:
    assert scrubbed(canary) == CANARIES[canary]


@pytest.mark.parametrize("canary", CANARIES)
def test_a_canary_is_found_within_a_text_and_the_text_stays(canary: str) -> None:
    said = scrubbed(f"It failed, {canary} twice.")
    # Of a private key that was cut off nobody knows where it ends.
    rest = "" if canary.startswith("-----BEGIN P") else " twice."
    assert said == f"It failed, {CANARIES[canary]}{rest}"


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_stays_unchanged(text: str) -> None:
    assert scrubbed(text) == text
    assert scrubbed({"text": [text]}) == {"text": [text]}


@pytest.mark.parametrize("canary", CANARIES)
@pytest.mark.parametrize("deep", [lambda text: {text: 1}, lambda text: {"a": [{"b": text}]}])
def test_an_event_is_kept_without_it_wherever_it_stands(
    canary: str, deep: Callable[[str], Any]
) -> None:
    (kept,) = _leaves(loads(read(event(properties=deep(canary))).properties))
    assert kept == CANARIES[canary]


def _leaves(value: Any) -> list[str]:
    """The texts of a value, and the names of members that are no innocent ones."""
    if isinstance(value, dict):
        names = [name for name in value if name not in {"a", "b"}]
        return names + [text for each in value.values() for text in _leaves(each)]
    if isinstance(value, list):
        return [text for each in value for text in _leaves(each)]
    return [value] if isinstance(value, str) and value != "[secret]" else []


def test_uuids_of_every_kind_stay() -> None:
    for _ in range(200):
        text = f"document {uuid4()} by {uuid4()}"
        assert scrubbed(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "password", "Password", "new_password", "passwordConfirmation", "dbPassword", "secret", "clientSecret",
        "token", "refreshToken", "refresh-token", "accesstoken", "token_2", "Authorization", "Proxy-Authorization",
        "cookie", "api_key", "apiKey", "X-API-Key", "private key", "sessionId", "credentials",
    ],
)  # fmt: skip
def test_the_value_of_a_member_named_secret_goes_whole(name: str) -> None:
    for value in ("x", 1234, ["x"], {"deep": {"x": 1}}):
        assert scrubbed({name: value}) == {name: "[secret]"}


@pytest.mark.parametrize("value", [True, False, None])
def test_the_presence_of_a_secret_is_none(value: Any) -> None:
    assert scrubbed({"password": value}) == {"password": value}


@pytest.mark.parametrize("name", ["max_tokens", "tokenCount", "keyboard", "key", "author"])
def test_names_that_only_sound_like_it_keep_their_value(name: str) -> None:
    assert scrubbed({name: 5}) == {name: 5}


def test_scrubbing_reaches_every_depth_and_does_not_change_its_input() -> None:
    given = {"a": [{"b": ["ada@acme.test", {"c": {"d": JWT}}]}], "n": 1.5, "t": True}
    assert scrubbed(given) == {
        "a": [{"b": ["[email]", {"c": {"d": "[token]"}}]}],
        "n": 1.5,
        "t": True,
    }
    assert given["a"] == [{"b": ["ada@acme.test", {"c": {"d": JWT}}]}]


def test_names_of_members_are_texts_too_and_none_is_lost() -> None:
    said = scrubbed({"ada@acme.test": 1, "eve@acme.test": 2, "[email] 2": 3})
    assert sorted(said.values()) == [1, 2, 3]
    assert not any("@" in name for name in said)


def test_names_that_become_equal_are_numbered_at_once() -> None:
    """Trying every number took 45 ms of 15 KB: the names that are there already hold the first five hundred."""
    taken = {f"[email] {501 + number}": 0 for number in range(500)}
    addresses = [f"{number:03d}@b.cc" for number in range(550)]
    alike = taken | dict.fromkeys(addresses, 0)
    # As much to look at, with no two that become equal.
    apart = taken | {f"{number} {each}": 0 for number, each in enumerate(addresses)}
    assert len(scrubbed(alike)) == len(scrubbed(apart)) == 1_050
    assert least(lambda: scrubbed(alike)) < 10 * least(lambda: scrubbed(apart))


@pytest.mark.parametrize(
    "text",
    [
        "a" * 16_000, "a@" * 8_000, "a." * 8_000, "x@" + "1." * 8_000, "eyJ" * 5_000, "eyJaaaaa." * 1_700,
        "bearer " * 2_000, "token" * 3_000, "password=" * 1_700, "-----BEGIN " * 1_400,
        "-----BEGIN PRIVATE KEY-----" * 600, "://" * 5_000, "://a:" * 3_000, "A1a/" * 4_000, "=" * 16_000,
        "a-" * 8_000, "0" * 16_000, "%40" * 5_000, "-" * 16_000, "secret " * 2_000, "basic a" * 2_000,
        "unexpected token: " * 1_000, "unexpected token" + ":" * 16_000,
    ],
)  # fmt: skip
def test_no_text_takes_long(text: str) -> None:
    # Some milliseconds; a pattern that reads a text again from each of its places takes seconds.
    assert takes_at_most(50, lambda: scrubbed(text))
