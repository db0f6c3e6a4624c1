"""Raw HTTP as an attacker writes it: no form desynchronises a connection, no body is answered with a 5xx.

The request that an attacker hides carries an id of its own. A service that reads the bytes as anybody in front of it
might not would answer it, under that id, to whoever comes next on the connection.
"""

import gzip
import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import requests

from tests.served.conftest import unexpected
from tests.served.service import HOST, Service
from tests.served.shell import PATIENCE, Shell

HIDDEN, NEXT = "hidden-request-0001", "next-request-000001"
SECRET = f"GET /v1/auth/me HTTP/1.1\r\nHost: {HOST}\r\nX-Request-ID: {HIDDEN}\r\n\r\n".encode()
AFTER = (
    f"GET /livez HTTP/1.1\r\nHost: {HOST}\r\nX-Request-ID: {NEXT}\r\nConnection: close\r\n\r\n"
).encode()
# Longer than the service takes to answer what it can read.
SILENCE = 3.0
SIZE = len(SECRET)


def post(headers: str, body: bytes = SECRET, line: str = "POST /v1/auth/logout HTTP/1.1") -> bytes:
    """A request whose body is the hidden one, or holds it."""
    return (
        f"{line}\r\nHost: {HOST}\r\nContent-Type: application/json\r\n{headers}\r\n\r\n".encode(
            "latin-1"
        )
        + body
    )


def chunk(size: str, *, end: str = "\r\n", after: bytes = b"\r\n0\r\n\r\n") -> bytes:
    return size.encode("latin-1") + end.encode() + SECRET + after


CL, TE, HEX = f"Content-Length: {SIZE}", "Transfer-Encoding: chunked", f"{SIZE:x}"
EMPTY = b"0\r\n\r\n" + SECRET

FORMS: dict[str, bytes] = {
    # One reader goes by the length, the other by chunks.
    **{
        f"length and {coding!r}": post(f"Content-Length: {len(EMPTY)}\r\n{coding}", EMPTY)
        for coding in (
            TE, "transfer-encoding: CHUNKED", "Transfer-Encoding:chunked", "Transfer-Encoding:\tchunked",
            "Transfer-Encoding: chunked ", "Transfer-Encoding : chunked", " Transfer-Encoding: chunked",
            "X: y\r\n Transfer-Encoding: chunked", "Transfer-Encoding: xchunked",
            "Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity, chunked",
            "Transfer-Encoding: chunked, chunked", 'Transfer-Encoding: "chunked"',
            "Transfer-Encoding: chunked;q=1", "Transfer-Encoding: \x0bchunked", "Transfer-Encoding: gzip, chunked",
            "Transfer_Encoding: chunked", "Transfer-Encoding\x00: chunked", "X: y\nTransfer-Encoding: chunked",
            "X: y\rTransfer-Encoding: chunked", f"{TE}\r\nTransfer-Encoding: identity", f"{TE}\r\n{TE}",
        )
    },
    "chunks in HTTP/1.0": post(TE, EMPTY, line="POST /v1/auth/logout HTTP/1.0"),
    # Lengths that readers take in different ways.
    **{
        f"length {length!r}": post(f"Content-Length: {length}")
        for length in (
            f"+{SIZE}", f"-{SIZE}", f"0x{SIZE:x}", f"{SIZE}.0", f"{SIZE},{SIZE}", f"0, {SIZE}", f"0 {SIZE}",
            f"{SIZE}_0", "\xb2", "1e2", "", "9" * 30,
        )
    },
    "two lengths": post(f"Content-Length: 0\r\n{CL}"),
    "two lengths, the larger first": post(f"{CL}\r\nContent-Length: 0"),
    "a length under another name": post(f"Content_Length: 0\r\n{CL}"),
    # Sizes and ends of chunks.
    **{
        f"chunk {size!r}": post(TE, chunk(size))
        for size in (f"0x{HEX}", f"+{HEX}", f"-{HEX}", f" {HEX}", f"{HEX} x", f"{HEX}_", "f" * 17, "", f"{HEX};a=\n")
    },
    "a chunk's line ends in LF": post(TE, chunk(HEX, end="\n")),
    "a chunk's line ends in CR": post(TE, chunk(HEX, end="\r")),
    "a chunk without its end": post(TE, chunk(HEX, after=b"0\r\n\r\n")),
    "a chunk shorter than it says": post(TE, chunk(f"{SIZE + 4:x}")),
    "a trailer that is a header": post(TE, b"0\r\nContent-Length: 99\r\n\r\n" + b"\r\n"),
    "a trailer that is nonsense": post(TE, b"0\r\nnonsense\r\n\r\n"),
    # Heads.
    "two hosts": b"GET /livez HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
    "no host": b"GET /v1/schema HTTP/1.1\r\n\r\n",
    "another host in the line": f"GET http://evil.test/v1/auth/me HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode(),
    "lines end in LF": f"GET /livez HTTP/1.1\nHost: {HOST}\n\n".encode(),
    "a NUL in a value": post("X: a\0b\r\nContent-Length: 0", b""),
    "a space before the first header": b" X: y\r\n".join([b"GET /livez HTTP/1.1\r\n", b"\r\n"]),
    "two spaces in the line": f"GET  /livez  HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode(),
    "HTTP/0.9": b"GET /livez\r\n\r\n",
    "an upgrade to h2c": post(
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 0", b""
    ),
    "HTTP/2 at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a line of a proxy": b"PROXY TCP4 127.0.0.9 127.0.0.1 1 2\r\n" + post("Content-Length: 0", b""),
    "120 headers": post("\r\n".join([*(f"X-{n}: y" for n in range(120)), "Content-Length: 0"]), b""),
    "a header of 20 KB": post(f"X: {'y' * 20_000}\r\nContent-Length: 0", b""),
    "an answer before the body": post(CL, line="POST /v1/llm/complete HTTP/1.1"),
    "a body that nobody expects": post(CL, line="GET /v1/auth/me HTTP/1.1"),
    "a body of another method": post(CL, line="DELETE /v1/auth/login HTTP/1.1"),
    "a body of nowhere": post(CL, line="POST /nowhere HTTP/1.1"),
    "an expectation": post(f"Expect: 100-continue\r\n{CL}"),
    "a strange expectation": post(f"Expect: the-unexpected\r\n{CL}"),
}  # fmt: skip


def answers_to(service: Service, form: bytes, *, silence: float = SILENCE) -> bytes:
    """All that comes back on one connection, on which an ordinary request follows."""
    received = b""
    with socket.create_connection((HOST, service.port), timeout=silence) as client:
        try:
            client.sendall(form + AFTER)
            while data := client.recv(65536):
                received += data
        except (TimeoutError, ConnectionError):
            # It waits for more of a body, or has closed over what it did not read.
            pass
    return received


def test_a_request_that_is_not_hidden_is_answered(service: Service) -> None:
    received = answers_to(service, post("Content-Length: 0"), silence=PATIENCE)
    assert HIDDEN.encode() in received
    assert NEXT.encode() in received


def test_no_form_hides_a_request_in_another(service: Service) -> None:
    assert len(FORMS) >= 62
    with ThreadPoolExecutor(16) as pool:
        answers = dict(
            zip(
                FORMS, pool.map(lambda form: answers_to(service, form), FORMS.values()), strict=True
            )
        )
    for name, received in answers.items():
        assert HIDDEN.encode() not in received, name
        statuses = re.findall(rb"^HTTP/1\.1 (\d{3}) ", received, re.MULTILINE)
        # A refusal of the form itself may be a 501 or 505 (RFC 9112); none is an error of ours.
        assert not {b"500", b"502", b"503", b"504"} & set(statuses), name
        # The request behind it is answered as itself or, on a closed connection, not at all.
        assert len([status for status in statuses if status != b"100"]) <= 2, name
        assert received.count(NEXT.encode()) <= 1, name
    assert unexpected(service.errors()) == []


def deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "NUL": b"\0",
    "NUL in a text": b'{"email":"a\\u0000@b.test","password":"\\u0000"}',
    "a lone surrogate": b'{"email":"\\ud800","password":"\\udfff","\\ud800":1}',
    "NaN": b'{"email":NaN,"password":Infinity}',
    "a number past every float": b'{"email":1e400,"password":-1e400}',
    "5,000 digits": b'{"email":' + b"9" * 5_000 + b"}",
    "10,000 levels": deep(10_000),
    "10,000 lists": b"[" * 10_000 + b"]" * 10_000,
    "65 levels": deep(65),
    "a member twice": b'{"email":"a@b.test","email":"c@d.test","password":"x"}',
    "UTF-16": '{"email":"a@b.test","password":"x"}'.encode("utf-16"),
    "UTF-32": '{"email":"a@b.test","password":"x"}'.encode("utf-32"),
    "overlong": b'{"email":"\xc0\xaf","password":"x"}',
    "no UTF-8": b'{"email":"\xff\xfe"}',
    "a comma too many": b'{"email":"a@b.test",}',
    "two documents": b"{}{}",
    "a list": b"[{}]",
    "a number": b"1",
    "half a document": b'{"email":"a@b.test","pass',
    "20,000 values": b'{"a":[' + b"0," * 20_000 + b"0]}",
    "all objects": b'{"email":{},"password":[],"refresh":{},"device_fp":[[]]}',
    "all null": b'{"email":null,"password":null,"refresh":null,"device_fp":null}',
    "all true": b'{"email":true,"password":true,"refresh":true,"device_fp":true}',
    "prototypes": b'{"__proto__":{"a":1},"constructor":1,"email":"a","password":"b"}',
    "a long text": b'{"email":"' + b"a" * 60_000 + b'","password":"x"}',
    "line ends": b'{"email":"a@b.test\\r\\nBcc: c@d.test","password":"x"}',
}  # fmt: skip
KINDS = (
    "application/json", "application/json; charset=utf-16", "application/json; charset=nonsense", "application/json; a",
    "APPLICATION/JSON", "application/problem+json", "text/plain", "text/html", "*/*", "application/*",
    "application/xml", "application/x-www-form-urlencoded", "multipart/form-data", "multipart/form-data; boundary=x",
    "", "nonsense", "a/b/c", "application/json, text/plain", "application/octet-stream",
    "application/json; charset*=utf-8''x",
)  # fmt: skip
CODINGS = (
    "gzip",
    "deflate",
    "br",
    "zstd",
    "compress",
    "identity",
    "gzip, gzip",
    "x-gzip",
    "nonsense",
)
PATHS = ("/v1/auth/login", "/v1/auth/refresh", "/v1/auth/password/reset", "/v1/telemetry",
         "/v1/llm/complete", "/v1/connections/google/complete", "/v1/internal/manifest/publish",
         "/v1/auth/password/change")  # fmt: skip


def hostile(shell: Shell) -> Iterator[tuple[str, dict[str, str], bytes]]:
    for path in PATHS:
        for text in TEXTS.values():
            yield path, {"Content-Type": "application/json"}, text
    bomb = gzip.compress(bytes(10_000_000))
    for path in ("/v1/auth/login", "/v1/telemetry", "/v1/llm/complete"):
        for kind in KINDS:
            yield path, {"Content-Type": kind}, b'{"email": "a@b.test"}'
        for coding in CODINGS:
            yield path, {"Content-Type": "application/json", "Content-Encoding": coding}, bomb


def test_no_body_is_too_much(service: Service, shell: Shell) -> None:
    def asked(one: tuple[str, dict[str, str], bytes]) -> tuple[str, requests.Response]:
        path, headers, body = one
        return f"{path} {headers} {body[:40]!r}", shell.post(path, data=body, headers=headers)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(asked, hostile(shell)))
    assert len(answers) >= 300
    for name, answer in answers:
        assert answer.status_code < 500 or answer.json()["code"] == "not_configured", name
        if answer.status_code >= 400:
            problem = json.loads(answer.text)
            assert problem["status"] == answer.status_code, name
            assert "Traceback" not in answer.text, name
    assert unexpected(service.errors()) == []
