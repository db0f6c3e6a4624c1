"""Bodies are whole where HTTP says so, however their bytes are grouped."""

from http.client import HTTPException

import pytest

from llmproxy.framing import MAX_LINE, Chunked, Framing, NotChunked, Sized

BODY = b"data: one\n\ndata: two\n\n" * 3
CHUNKS = (
    b"16;name=value\r\n" + BODY[:22] + b"\r\n 2C \r\n" + BODY[22:] + b"\r\n0\r\nX-Sum: 1\r\n\r\n"
)


def taken(framing: Framing, data: bytes, *, size: int) -> bytes:
    return b"".join(framing.take(data[at : at + size]) for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [*range(1, 30), 1_000])
def test_chunks_are_put_together_wherever_they_are_cut(size: int) -> None:
    framing = Chunked()
    assert taken(framing, CHUNKS, size=size) == BODY
    assert framing.over


@pytest.mark.parametrize("cut", range(len(CHUNKS)))
def test_chunks_that_stop_before_the_last_are_no_whole_body(cut: int) -> None:
    framing = Chunked()
    framing.take(CHUNKS[:cut])
    assert not framing.over
    with pytest.raises(HTTPException):
        framing.end()


@pytest.mark.parametrize(
    "data",
    [
        b"zz\r\n",
        b"-1\r\n",
        b"1_0\r\n",
        b"\r\n",
        b"3\r\noneX\r\n",
        b"11111111111111111\r\n",
        b"1;" + b"x" * MAX_LINE,
        b"1;" + b"x" * (MAX_LINE - 1) + b"\nA\r\n0\r\n\r\n",
        b"0\r\n" + b"x" * (MAX_LINE + 1) + b"\n\r\n",
    ],
)
def test_what_is_no_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(NotChunked):
        Chunked().take(data)


@pytest.mark.parametrize(
    ("framing", "whole"), [(Sized(3), b"one"), (Chunked(), b"3\r\none\r\n0\r\n\r\n")]
)
def test_what_comes_after_a_body_is_none_of_it(framing: Framing, whole: bytes) -> None:
    assert framing.take(whole + b"more") == b"one"
    assert framing.over
    assert framing.exceeded


def test_a_body_with_a_length_ends_there() -> None:
    framing = Sized(3)
    assert framing.take(b"on") == b"on"
    with pytest.raises(HTTPException):
        framing.end()
    assert framing.take(b"e") == b"e"
    assert framing.over
    assert not framing.exceeded


def test_a_body_without_either_ends_with_its_connection() -> None:
    framing = Framing()
    assert framing.take(b"one") == b"one"
    assert not framing.over
    framing.end()
    assert framing.over
