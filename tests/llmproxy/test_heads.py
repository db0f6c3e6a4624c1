"""Heads of requests and answers: what is written, what is understood, and what is refused."""

from http.client import HTTPException

import pytest

from llmproxy.framing import Chunked, Framing, Sized, framing_of
from llmproxy.heads import MOST_BYTES, BadHead, end_of, parsed, written

OK = b"HTTP/1.1 200 OK\r\n"


def test_a_request_says_whom_it_is_for_and_how_long_it_is() -> None:
    head = written("POST", "/v1/chat", "model.test:8443", {"X-One": "1", "Accept": "*/*"}, 12)
    assert head == (
        b"POST /v1/chat HTTP/1.1\r\nHost: model.test:8443\r\nContent-Length: 12\r\n"
        b"X-One: 1\r\nAccept: */*\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer hidden\n"),
        ("Authorization", "one\r\nX: two"),
        ("Authorization", "\0"),
        ("Authorization", "hidden-kěy"),
        ("X One", "1"),
        ("X:", "1"),
        ("", "1"),
    ],
)
def test_what_no_header_can_hold_is_not_written(name: str, value: str) -> None:
    with pytest.raises(BadHead) as caught:
        written("POST", "/", "model.test", {name: value}, 0)
    assert "hidden" not in repr(caught.value)


@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"])
@pytest.mark.parametrize("size", range(1, 60))
def test_a_head_ends_with_an_empty_line_however_its_bytes_come(line_end: bytes, size: int) -> None:
    head = line_end.join([b"HTTP/1.1 200 OK", b"A: 1", b"B:  2 ", b"", b""])
    data, sent = b"", head + b"body"
    while (end := end_of(data)) is None:
        data += sent[len(data) : len(data) + size]
    assert data[:end] == head
    known = parsed(data[:end])
    assert (known.status, dict(known.headers)) == (200, {"a": "1", "b": "2"})


def test_a_head_without_an_end_is_none() -> None:
    with pytest.raises(BadHead):
        end_of(b"x" * (MOST_BYTES + 1))


def test_a_head_is_too_long_though_its_end_has_come() -> None:
    longest = OK + b"X: " + b"x" * (MOST_BYTES - len(OK) - 7) + b"\r\n\r\n"
    assert end_of(longest + b"body" * MOST_BYTES) == MOST_BYTES
    with pytest.raises(BadHead):
        end_of(OK + b"X" + longest.removeprefix(OK))


def test_headers_have_no_case_and_those_that_come_twice_are_joined() -> None:
    headers = parsed(
        OK + b"Retry-After: 7\r\nvia: a\r\nVIA: b\r\nX-Long: one\r\n  two\r\n\r\n"
    ).headers
    assert headers["rEtRy-aFtEr"] == headers.get("Retry-After") == "7"
    assert headers["Via"] == "a, b"
    assert headers["X-Long"] == "one two"
    assert "X-None" not in headers
    assert headers.get("X-None") is None


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-server\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"Content-Length : 5\r\n\r\n",
        OK + b": nameless\r\n\r\n",
    ],
)
def test_what_is_no_head_is_refused(head: bytes) -> None:
    with pytest.raises(HTTPException):
        parsed(head)


@pytest.mark.parametrize(
    ("head", "stays"),
    [
        (OK, True),
        (b"HTTP/1.1 200\r\n", True),
        (OK + b"Connection: close\r\n", False),
        (OK + b"Connection: X-Sum, Close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", True),
    ],
)
def test_a_connection_stays_where_its_server_says_so(head: bytes, stays: bool) -> None:
    assert parsed(head + b"\r\n").stays is stays


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (OK + b"Content-Length: 5\r\n", Sized),
        (OK + b"Content-Length: 5\r\nContent-Length: 5\r\n", Sized),
        (OK + b"Transfer-Encoding: Chunked\r\nContent-Length: 5\r\n", Chunked),
        (OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Chunked),
        (OK + b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n", Sized),
        (OK + b"Transfer-Encoding: identity\r\n", Framing),
        (OK, Framing),
        (b"HTTP/1.1 204 No Content\r\n", Sized),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n", Sized),
    ],
)
def test_the_head_says_how_the_body_ends(head: bytes, kind: type[Framing]) -> None:
    assert type(framing_of(parsed(head + b"\r\n"))) is kind


@pytest.mark.parametrize("length", [b"5, 6", b"-5", b"+5", b"0x5", b"5 5", b"", b"9" * 16])
def test_a_length_that_is_not_clear_is_refused(length: bytes) -> None:
    with pytest.raises(BadHead):
        framing_of(parsed(OK + b"Content-Length: " + length + b"\r\n\r\n"))


@pytest.mark.parametrize("coding", [b"gzip", b"gzip, chunked", b"Chunked, deflate"])
def test_a_coding_that_was_not_asked_for_is_refused(coding: bytes) -> None:
    with pytest.raises(BadHead):
        framing_of(parsed(OK + b"Transfer-Encoding: " + coding + b"\r\n\r\n"))
