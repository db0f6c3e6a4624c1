"""The text of a key: known by its checksum, and by nothing but the whole of it."""

import re
import subprocess
import sys
from base64 import b32encode
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import pytest

from config.platform.observability.logs import SECRET
from llmproxy.keys.key_text import KeyText

CHECK = Path(__file__).resolve().parents[3] / "docs/examples/sdk/key_check.py"
KEY = KeyText(bytes(range(32)))


def test_a_text_is_its_bytes_and_their_checksum() -> None:
    wanted = b32encode(KEY.random + crc32(KEY.random).to_bytes(4)).decode().lower().rstrip("=")
    assert KEY.text == f"sk-shell-{wanted}"
    assert KeyText.parse(KEY.text) == KEY
    assert KEY.hashed == sha256(bytes(range(32))).digest()


def test_each_new_key_is_another() -> None:
    keys = [KeyText.new() for _ in range(50)]
    assert len({each.text for each in keys}) == 50
    assert {len(each.random) for each in keys} == {32}
    assert all(KeyText.parse(each.text) == each for each in keys)


@pytest.mark.parametrize("place", range(9, 67))
def test_one_other_letter_is_no_key(place: int) -> None:
    other = "a" if KEY.text[place] != "a" else "b"
    assert KeyText.parse(KEY.text[:place] + other + KEY.text[place + 1 :]) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sk-shell-",
        KEY.text[:-1],
        f"{KEY.text}a",
        f" {KEY.text}",
        f"{KEY.text}\n",
        KEY.text.upper(),
        KEY.text.replace("shell", "other"),
        KEY.text.replace("a", "\N{CYRILLIC SMALL LETTER A}", 1),
    ],
)
def test_anything_else_is_no_key(text: str) -> None:
    assert KeyText.parse(text) is None


def test_no_trace_of_a_key_shows_it() -> None:
    assert repr(KEY) == "KeyText()"
    assert SECRET.search(KEY.text)


def test_the_documented_pattern_and_check_know_keys_and_nothing_else() -> None:
    program = CHECK.read_text()
    patterns = re.findall(r"^(sk-shell-.*)$", program, re.MULTILINE)
    assert patterns
    key = KeyText.new().text
    assert all(re.search(each, f"OPENAI_API_KEY={key}\n") for each in patterns)
    wrong = key[:9] + ("a" if key[9] != "a" else "b") + key[10:]
    for text, said in ((key, "a key"), (wrong, "no key")):
        done = subprocess.run(
            [sys.executable, "-c", program, text], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == said
