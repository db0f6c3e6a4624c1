"""Refusals before any view runs, byte for byte on the wire: a problem, unless it is no request."""

import json
import socket
from http.client import HTTPResponse
from typing import Any, NamedTuple

import pytest

from tests.served.service import HOST, Service
from tests.served.shell import PATIENCE, Shell

KIB = 1024
MIB = 1024 * KIB
DEEP = b'{"a":' * 5_000 + b"1" + b"}" * 5_000


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def send(service: Service, *parts: bytes) -> Answer:
    """Sends these bytes, as far as they are taken, and reads one answer."""
    with socket.create_connection((HOST, service.port), timeout=PATIENCE) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except ConnectionError:
            # It has answered already and does not read the rest.
            pass
        response = HTTPResponse(connection)
        response.begin()
        body = response.read()
    return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, body)


def request(line: str, *headers: str, body: bytes = b"", host: str = HOST) -> bytes:
    lines = [line, f"Host: {host}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def posted(path: str, body: bytes, *headers: str, kind: str = "application/json") -> bytes:
    kind = f"Content-Type: {kind}"
    return request(
        f"POST {path} HTTP/1.1", kind, f"Content-Length: {len(body)}", *headers, body=body
    )


def _shown(value: object) -> str:
    return value[:40].decode("latin-1") if isinstance(value, bytes) else str(value)


def assert_problem(answer: Answer, status: int, code: str) -> dict[str, Any]:
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = json.loads(answer.body)
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"/problems/{code}"
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"]
    return problem


LOGIN = "/v1/auth/login"
# JSON that is no object is refused by the parser; see below.
JSON_FAULTS = {"nothing": b"", "no JSON": b"{not json", "5,000 levels": DEEP}


@pytest.mark.parametrize("body", JSON_FAULTS.values(), ids=JSON_FAULTS.keys())
@pytest.mark.parametrize("path", [LOGIN, "/v1/llm/complete"])
def test_a_body_that_is_no_json_object_is_malformed(
    service: Service, shell: Shell, path: str, body: bytes
) -> None:
    answer = send(service, posted(path, body, f"Authorization: Bearer {shell.access}"))
    problem = assert_problem(answer, 400, "malformed_request")
    assert ("error" in problem) == path.startswith("/v1/llm/")


@pytest.mark.parametrize(
    ("path", "limit"), [(LOGIN, 64 * KIB), ("/v1/llm/complete", 8 * MIB), ("/nowhere", 64 * KIB)]
)
def test_a_body_is_refused_by_its_length_before_it_is_read(
    service: Service, path: str, limit: int
) -> None:
    head = request(
        f"POST {path} HTTP/1.1", "Content-Type: application/json", f"Content-Length: {limit + 1}"
    )
    assert_problem(send(service, head), 413, "request_too_large")


@pytest.mark.parametrize(("path", "limit"), [(LOGIN, 64 * KIB), ("/v1/llm/complete", 8 * MIB)])
def test_a_body_in_chunks_is_refused_when_it_becomes_too_large(
    service: Service, shell: Shell, path: str, limit: int
) -> None:
    head = request(
        f"POST {path} HTTP/1.1",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
        f"Authorization: Bearer {shell.access}",
    )
    chunk = b"10000\r\n" + b" " * 64 * KIB + b"\r\n"
    answer = send(service, head, *[chunk] * (limit // (64 * KIB) + 1), b"0\r\n\r\n")
    assert_problem(answer, 413, "request_too_large")


def test_a_body_in_chunks_of_any_size_is_taken(service: Service, shell: Shell) -> None:
    body = json.dumps({"refresh": shell.refresh_token}).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    head = request(
        "POST /v1/auth/logout HTTP/1.1",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
    )
    assert send(service, head, chunks, b"0\r\n\r\n").status == 204
    assert shell.get("/v1/auth/me").status_code == 401


@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        ("text/plain", ()),
        ("application/x-www-form-urlencoded", ()),
        ("multipart/form-data; boundary=x", ()),
        ("nonsense;;;=", ()),
        ("application/json", ("Content-Encoding: gzip",)),
    ],
)
@pytest.mark.parametrize("path", [LOGIN, "/v1/llm/stream"])
def test_a_body_of_another_kind_is_not_taken(
    service: Service, shell: Shell, path: str, kind: str, headers: tuple[str, ...]
) -> None:
    authorisation = f"Authorization: Bearer {shell.access}"
    answer = send(service, posted(path, b"{}", authorisation, *headers, kind=kind))
    assert_problem(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("bytes_", "status", "code"),
    [
        (request("GET /v1/auth/me HTTP/1.1", host="evil.test"), 400, "malformed_request"),
        (request("GET /v1/auth/me HTTP/1.1", host="a/../b"), 400, "malformed_request"),
        (request("GET /v1/auth/me%00 HTTP/1.1"), 400, "malformed_request"),
        (request("GET /v1/nowhere HTTP/1.1"), 404, "not_found"),
        (request("GET /v1/auth/me/ HTTP/1.1"), 404, "not_found"),
        (request("DELETE /v1/auth/login HTTP/1.1"), 405, "method_not_allowed"),
        (request("BREW /v1/auth/login HTTP/1.1"), 405, "method_not_allowed"),
        (request("GET /v1/auth/me HTTP/1.1"), 401, "not_authenticated"),
        (
            request("GET /v1/auth/me HTTP/1.1", "Authorization: Basic YTpi"),
            401,
            "not_authenticated",
        ),
        (request("GET /v1/auth/me HTTP/1.1", "Authorization: Bearer"), 401, "invalid_access_token"),
        (
            request("GET /v1/auth/me HTTP/1.1", "Authorization: Bearer é"),
            401,
            "invalid_access_token",
        ),
        (request("POST /healthz HTTP/1.1", "Content-Length: 0"), 405, "method_not_allowed"),
    ],
    ids=_shown,
)
def test_a_request_that_no_view_sees_is_refused_by_a_problem(
    service: Service, bytes_: bytes, status: int, code: str
) -> None:
    answer = send(service, bytes_)
    assert_problem(answer, status, code)
    if status == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer")
    if status == 405:
        assert answer.headers["allow"]


@pytest.mark.parametrize(
    ("bytes_", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon here\r\n\r\n", 400),
        (b"GET /v1/auth/me HTTP/1.1\r\n\r\n", 400),
        (request(f"GET /{'a' * 9_000} HTTP/1.1"), 414),
        (request("GET / HTTP/1.1", *["X: 1"] * 101), 431),
    ],
    ids=_shown,
)
def test_bytes_that_are_no_request_are_refused_by_the_server(
    service: Service, bytes_: bytes, status: int
) -> None:
    assert send(service, bytes_).status == status


def test_an_answer_in_a_kind_that_nobody_makes_is_not_acceptable(
    service: Service, shell: Shell
) -> None:
    authorisation = f"Authorization: Bearer {shell.access}"
    asked = request("GET /v1/auth/me HTTP/1.1", "Accept: image/png", authorisation)
    assert_problem(send(service, asked), 406, "not_acceptable")


def test_the_id_of_a_request_is_the_callers_where_it_is_a_sane_one(service: Service) -> None:
    for given, kept in (("shell-12345678", True), ("x", False), ("a b c d e f g h", False)):
        answer = send(service, request("GET /v1/nowhere HTTP/1.1", f"X-Request-ID: {given}"))
        problem = assert_problem(answer, 404, "not_found")
        assert (problem["request_id"] == given) is kept
