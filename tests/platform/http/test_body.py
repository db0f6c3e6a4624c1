"""The framing of bodies: whole however their bytes are grouped, and refused where it breaks the rules."""

import re
from http.client import HTTPException, IncompleteRead

import pytest

from config.platform.http.body import BadChunk, Body

# Bytes that follow a head, and the body in them.
CHUNKED = [
    (b"0\r\n\r\n", b""),
    (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    (b"5\r\nhello\r\n006\r\n world\r\n0\r\n\r\n", b"hello world"),
    (b"5;name=value\r\nhello\r\n0;last\r\n\r\n", b"hello"),
    (b"a  \r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
    (b"0000000000000000005\r\nhello\r\n0\r\n\r\n", b"hello"),
    (b"4\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n\r\n"),
    (b"5\r\nhello\r\n0\r\nExpires: never\r\nDigest: x\r\n\r\n", b"hello"),
]
LAST_CHUNK = re.compile(rb"(?:^|\r\n)0(?:;last)?\r\n")
BROKEN = [
    b"\r\n\r\n",
    b"hello\r\n",
    b"-5\r\nhello\r\n",
    b"0x5\r\nhello\r\n",
    b"5_0\r\nhello\r\n",
    b"5\nhello\r\n0\r\n\r\n",
    b"5\r\nhello!\r\n0\r\n\r\n",
    b"5\r\nhello\n0\r\n\r\n",
    b"5\r\nhello0\r\n\r\n",
    b"fffffffffffffffff\r\n",
    b"5;" + b"x" * 20_000,
    b"0\r\n" + b"X: y\r\n" * 4_000,
]


def chunked() -> Body:
    return Body(chunked=True, length=None)


def decoded(body: Body, data: bytes, *, step: int) -> bytes:
    out = b""
    for at in range(0, len(data), step):
        out += body.decode(data[at : at + step])
        if body.ended:
            break
    return out


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(("data", "expected"), CHUNKED)
def test_chunks_are_one_body_however_they_come(data: bytes, expected: bytes, step: int) -> None:
    body = chunked()
    assert decoded(body, data, step=step) == expected
    assert body.ended
    assert not body.is_followed


@pytest.mark.parametrize("data", [data for data, _ in CHUNKED])
def test_a_body_in_chunks_has_no_end_before_its_last_byte(data: bytes) -> None:
    found = LAST_CHUNK.search(data)
    assert found is not None
    last = found.end()
    for cut in range(1, len(data)):
        body = chunked()
        body.decode(data[:cut])
        assert not body.ended
        if cut >= last:
            # Behind the last chunk an end loses nothing.
            assert body.decode(b"") == b""
            assert body.ended
            assert body.is_followed
            continue
        with pytest.raises(IncompleteRead):
            body.decode(b"")


@pytest.mark.parametrize("step", [1, 5, 100_000])
@pytest.mark.parametrize("data", BROKEN)
def test_chunks_that_break_the_rules_are_no_body(data: bytes, step: int) -> None:
    body = chunked()
    with pytest.raises(BadChunk):
        decoded(body, data, step=step)
    assert issubclass(BadChunk, HTTPException)
    assert not body.ended


@pytest.mark.parametrize("step", [1, 3, 100])
def test_a_length_is_the_end(step: int) -> None:
    body = Body(chunked=False, length=5)
    assert decoded(body, b"hello", step=step) == b"hello"
    assert body.ended
    with pytest.raises(IncompleteRead):
        Body(chunked=False, length=5).decode(b"")
    assert Body(chunked=False, length=0).ended
    # An answer to HEAD, or one without a body.
    assert Body(chunked=True, length=0).ended


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    body = Body(chunked=False, length=None)
    assert body.decode(b"hello") == b"hello"
    assert not body.ended
    assert body.decode(b"") == b""
    assert body.ended


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (Body(chunked=False, length=5), b"hello" + b"HTTP/1.1 200 OK"),
        (chunked(), b"5\r\nhello\r\n0\r\n\r\n" + b"H"),
        (chunked(), b"5\r\nhello\r\n0\r\nX: y\r\n\r\n" + b"\r\n"),
    ],
)
def test_bytes_behind_a_body_are_seen_and_not_part_of_it(body: Body, data: bytes) -> None:
    assert body.decode(data) == b"hello"
    assert body.ended
    assert body.is_followed
