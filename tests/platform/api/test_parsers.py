import io
import json
from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
from django.conf import settings
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path, re_path
from django.views.decorators.csrf import csrf_exempt
from rest_framework.parsers import FormParser
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from config.platform.api.parsers import MAX_DEPTH, MAX_VALUES, ObjectParser, parsed
from config.platform.edge.body_limits import (
    ELSEWHERE,
    KIB,
    LIMITS,
    MIB,
    BodyLimitMiddleware,
    limit_of,
)
from config.platform.problems import rendering as handlers
from config.platform.problems.problem import MalformedRequest
from tests.effort import takes_at_most
from tests.platform.api.gunicorn_requests import chunked, serve


class Echo(APIView):
    """Answers with what was parsed."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def get(self, request: Request) -> Response:
        return Response({})

    def post(self, request: Request) -> Response:
        return Response(request.data)


class Guarded(APIView):
    """Nobody may; a body must not have been read to find that out."""

    authentication_classes = ()

    def post(self, request: Request) -> Response:
        raise AssertionError


class Tolerant(Echo):
    class OwnParser(ObjectParser):
        checks_values = False

    parser_classes = (OwnParser,)

    def post(self, request: Request) -> Response:
        return Response(dict.fromkeys(request.data, True))


class Forms(Echo):
    parser_classes = (FormParser,)


class Both(Echo):
    def post(self, request: Request) -> Response:
        return Response({"parsed": request.data, "exact": request.body.decode("latin-1")})


@csrf_exempt
def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body)


urlpatterns = [
    path("v1/echo", Echo.as_view()),
    path("v1/auth/echo", Echo.as_view()),
    path("v1/llm/echo", Echo.as_view()),
    path("v1/guarded", Guarded.as_view()),
    path("v1/tolerant", Tolerant.as_view()),
    path("v1/forms", Forms.as_view()),
    path("v1/both", Both.as_view()),
    re_path("^v1/(?:internal/)?plain$", plain),
]
handler400 = handlers.bad_request
handler403 = handlers.permission_denied
handler404 = handlers.page_not_found
handler500 = handlers.server_error


@pytest.fixture(autouse=True)
def _own_addresses() -> Iterator[None]:
    hosts = ["testserver", "127.0.0.1"]
    with override_settings(ROOT_URLCONF=__name__, SECURE_SSL_REDIRECT=False, ALLOWED_HOSTS=hosts):
        yield


@pytest.fixture(autouse=True)
def _without_database() -> Iterator[None]:
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


def post(
    client: Client, address: str, body: bytes | str, kind: str = "application/json", **headers: str
) -> Any:
    return client.generic("POST", address, body, content_type=kind, headers=headers)


def nested(depth: int) -> str:
    """An object nested so deep, alternating with lists."""
    opening = "".join('{"a":' if level % 2 == 0 else "[" for level in range(depth))
    closing = "".join("}" if level % 2 == 0 else "]" for level in reversed(range(depth)))
    return f"{opening}1{closing}"


@pytest.mark.parametrize(
    ("address", "limit"),
    [
        ("/v1/auth/login", 64 * KIB),
        ("/v1/telemetry", MIB),
        ("/v1/internal/manifest/publish", MIB),
        ("/v1/llm/complete", 8 * MIB),
        ("/v1/license/status", 64 * KIB),
        ("/v1/connections/google/authorize", 64 * KIB),
        ("/account/password/x", 64 * KIB),
        ("/admin/accounts/user/", 5 * MIB // 2),
        ("/anything", 64 * KIB),
    ],
)
def test_every_address_has_its_limit(address: str, limit: int) -> None:
    assert limit_of(address) == limit


def test_django_limits_no_body_below_its_address() -> None:
    assert max(*LIMITS.values(), ELSEWHERE) <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE


def test_a_body_of_the_limit_is_accepted_and_one_byte_more_is_not(client: Client) -> None:
    most = b'{"a":"' + b"x" * (64 * KIB - 8) + b'"}'
    assert len(most) == 64 * KIB
    assert post(client, "/v1/echo", most).status_code == 200
    refused = post(client, "/v1/echo", most + b" ")
    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["limit"]) == (
        413,
        "request_too_large",
        64 * KIB,
    )


def test_a_model_call_may_be_large(client: Client) -> None:
    body = json.dumps({"messages": ["x" * (3 * MIB)]})
    assert post(client, "/v1/llm/echo", body).status_code == 200


def test_a_body_that_is_too_large_is_not_read() -> None:
    class Unreadable(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise AssertionError

    environ = {"wsgi.input": Unreadable(), "CONTENT_LENGTH": str(9 * MIB)}
    request = RequestFactory().generic("POST", "/v1/llm/complete", **environ)
    assert BodyLimitMiddleware(lambda _: HttpResponse())(request).status_code == 413


@pytest.mark.parametrize(
    "length", ["-1", "+5", "1_0", "5.0", "five", "\N{ARABIC-INDIC DIGIT FIVE}", "0x5", " 5"]
)
def test_a_length_that_is_no_number_is_malformed(client: Client, length: str) -> None:
    response = client.post("/v1/echo", CONTENT_LENGTH=length)
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


def test_a_length_with_thousands_of_digits_is_too_large(client: Client) -> None:
    assert client.post("/v1/echo", CONTENT_LENGTH="9" * 6000).status_code == 413


def test_a_truncated_body_is_malformed(client: Client) -> None:
    body = b'{"a": 1}'
    raw = b"POST /v1/echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"
    answer = serve([raw, body[:-1]])
    assert (answer.status, json.loads(answer.body)["code"]) == (400, "malformed_request")


def test_a_request_without_a_body_is_let_through(client: Client) -> None:
    assert client.get("/v1/echo").status_code == 200


def test_a_chunked_body_is_read_whole() -> None:
    answer = serve(chunked("/v1/echo", b'{"a":', b' "', "ü".encode(), b'"}'))
    assert (answer.status, json.loads(answer.body)) == (200, {"a": "ü"})


def test_a_chunked_body_keeps_its_exact_bytes() -> None:
    assert serve(chunked("/v1/internal/plain", b'{"a" :', b" 1 }\n")).body == b'{"a" : 1 }\n'


def test_exact_bytes_and_parsed_data_are_both_available() -> None:
    both = json.loads(serve(chunked("/v1/both", b'{"a" : 1}')).body)
    assert both == {"parsed": {"a": 1}, "exact": '{"a" : 1}'}


@pytest.mark.parametrize("path", ["/v1/echo", "/v1/plain"])
def test_a_chunked_body_over_the_limit_is_refused(path: str) -> None:
    answer = serve(chunked(path, b'{"a":"', b"x" * (64 * KIB), b'"}'))
    problem = json.loads(answer.body)
    assert (answer.status, problem["code"], problem["limit"]) == (
        413,
        "request_too_large",
        64 * KIB,
    )


def test_a_chunked_body_is_not_read_without_permission() -> None:
    def pieces() -> Iterator[bytes]:
        head, *_ = chunked("/v1/guarded", b"x")
        yield head
        yield pytest.fail("the body was read")

    answer = serve(pieces())
    assert (answer.status, json.loads(answer.body)["code"]) == (403, "permission_denied")


@pytest.mark.parametrize("end", [b"zz\r\n", b"5\r\nab"])
def test_unreadable_chunks_are_malformed(end: bytes) -> None:
    answer = serve(chunked("/v1/echo", b'{"a":', end=end))
    assert (answer.status, json.loads(answer.body)["code"]) == (400, "malformed_request")


def test_an_empty_chunked_body_is_malformed() -> None:
    answer = serve(chunked("/v1/echo"))
    assert json.loads(answer.body)["code"] == "malformed_request"


def test_a_body_without_length_is_refused_by_servers_without_chunks(client: Client) -> None:
    response = client.post("/v1/echo", CONTENT_LENGTH="", HTTP_TRANSFER_ENCODING="chunked")
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


def test_a_body_with_two_lengths_is_refused(client: Client) -> None:
    response = post(client, "/v1/echo", b"{}", **{"Transfer-Encoding": "chunked"})
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


@pytest.mark.parametrize("address", ["/v1/echo?name=%00", "/v1/%00", "/v1/echo?%00=a"])
def test_an_address_with_nul_is_malformed(client: Client, address: str) -> None:
    response = client.get(address)
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


def test_an_object_is_parsed(client: Client) -> None:
    document = {
        "text": "ü \U0001f600 \u2028",
        "n": -1,
        "f": 0.5,
        "list": [None, True, {}],
        "big": 2**63 - 1,
    }
    for ensure_ascii in (True, False):
        body = json.dumps(document, ensure_ascii=ensure_ascii).encode()
        assert post(client, "/v1/echo", body).json() == document


@pytest.mark.parametrize("body", [b'\xef\xbb\xbf{"a": 1}', b' \n{"a": 1}\t'])
def test_a_byte_order_mark_and_surrounding_space_are_ignored(body: bytes) -> None:
    assert parsed(body) == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b'"text"',
        b"1",
        b"{",
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": 1} {"b": 2}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1, "a": 2}',
        b'{"o": {"a": 1, "\\u0061": 2}}',
        b'{"a" : 1, "a"\n:\t2, "b" :3}',
        b'{"a": [{"x":1,"x":1}], "b": "\\":"}',
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": "line\nfeed"}',
        b'{"a": "\x00"}',
        '{"a": 1}'.encode("utf-16"),
        b"\xff\xfe",
    ],
)
def test_anything_but_a_strict_object_in_utf8_is_malformed(client: Client, body: bytes) -> None:
    response = post(client, "/v1/tolerant", body)
    if body == b"":
        # REST framework asks no parser about an empty body; whoever needs a member refuses it.
        assert response.json() == {}
        with pytest.raises(MalformedRequest):
            parsed(body)
    else:
        assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


@pytest.mark.parametrize("text", ['":', '": 1, "a":', '"a" : 1', '\\":\\', ": ", '"'])
def test_a_text_that_looks_like_a_member_is_a_text(text: str) -> None:
    document = {"a": text, text: {"a": [text, {text: text}]}}
    for indent in (None, 2):
        assert parsed(json.dumps(document, indent=indent).encode()) == document


@pytest.mark.parametrize("depth", [1, 2, MAX_DEPTH - 1, MAX_DEPTH])
def test_nesting_up_to_the_limit_is_parsed(depth: int) -> None:
    assert parsed(nested(depth).encode())


@pytest.mark.parametrize(
    "body", [nested(MAX_DEPTH + 1), nested(900), nested(5000), nested(30_000), "[" * 60_000]
)
def test_nesting_beyond_it_is_malformed(client: Client, body: str) -> None:
    response = post(client, "/v1/llm/echo", body)
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")
    assert "deep" in response.json()["detail"] or not body.startswith("{")


def test_the_number_of_values_is_limited(client: Client) -> None:
    assert (
        post(client, "/v1/llm/echo", '{"a":[' + "1," * (MAX_VALUES - 2) + "1]}").status_code == 200
    )
    response = post(client, "/v1/llm/echo", '{"a":[' + "1," * (MAX_VALUES - 1) + "1]}")
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


@pytest.mark.parametrize(
    ("document", "pointer", "code"),
    [
        (r'{"a": ["ok", "\ud800"]}', "/a/1", "invalid_characters"),
        (r'{"a": {"b/c": [{"d": "\udc00\ud800"}]}}', "/a/b~1c/0/d", "invalid_characters"),
        (r'{"a": {"\ud800": 1}}', "/a", "invalid_characters"),
        (r'{"\ud800": 1}', "", "invalid_characters"),
        ('{"a": 1e400}', "/a", "out_of_range"),
        ('{"a": [-1e400]}', "/a/0", "out_of_range"),
        (r'{"a": "\":", "b": [-%s]}' % ("9" * 5000), "/b/0", "out_of_range"),
    ],
)
def test_invalid_values_have_pointers(
    client: Client, document: str, pointer: str, code: str
) -> None:
    response = post(client, "/v1/echo", document)
    problem = response.json()
    assert (response.status_code, problem["code"]) == (400, "invalid_request")
    assert [(each["pointer"], each["code"]) for each in problem["errors"]] == [(pointer, code)]


@pytest.mark.parametrize("value", ["1e999", r'"\ud800"', r'{"\ud800": 1}'])
def test_an_answer_repeats_neither_long_names_nor_very_many_places(
    client: Client, value: str
) -> None:
    name = "k" * 32_000
    places = ",".join([value] * (32_000 // (len(value) + 1)))
    response = post(client, "/v1/echo", f'{{"{name}": [{places}]}}')
    errors = response.json()["errors"]
    assert len(errors) == 20
    assert all(each["pointer"].startswith(f"/{name[:99]}…/") for each in errors)
    assert len(response.content) < 10_000


@pytest.mark.parametrize("wrong", ["NaN", "}", '1, "a": 1'])
def test_a_long_number_hides_no_other_fault(wrong: str) -> None:
    with pytest.raises(MalformedRequest) as refused:
        parsed(b'{"n": %s, "a": %s}' % (b"9" * 5000, wrong.encode()))
    assert (refused.value.detail == "The body is not JSON.") == (wrong == "}")


def test_a_number_of_a_million_digits_is_read_at_once() -> None:
    body = b'{"n": %s}' % (b"9" * 1_000_000)
    assert parsed(body) == {"n": inf}
    assert takes_at_most(50, lambda: parsed(body))


def test_values_that_only_a_field_can_check_are_parsed(client: Client) -> None:
    document = {"nul": "x\0y", "large": 2**70}
    assert post(client, "/v1/echo", json.dumps(document)).json() == document


def test_a_parser_may_leave_all_values_to_its_view(client: Client) -> None:
    response = post(client, "/v1/tolerant", r'{"a": "\ud800", "b": 1}')
    assert response.json() == {"a": True, "b": True}


@pytest.mark.parametrize(
    "kind",
    ["application/json", "application/json; charset=UTF-8", 'Application/JSON;charset="utf-8"'],
)
def test_json_in_utf8_is_accepted_under_every_name(client: Client, kind: str) -> None:
    assert post(client, "/v1/echo", b'{"a": 1}', kind).status_code == 200


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "text/plain",
        "application/xml",
        "*/*",
        "*/json",
        "application/*",
        "application/*; charset=utf-8",
        "application/json; charset=latin-1",
        "application/json; charset=utf-16",
        "application/json; charset=bz2_codec",
        "application/json; charset=undefined",
        "application/json; charset=nonsense",
        "application/json; charset*=nonsense''x",
        "application/json; charset*0=a; charset*1*=b''c",
        "x" * 5000,
    ],
)
def test_other_media_types_are_refused_by_a_real_server_too(kind: str) -> None:
    head = f"POST /v1/echo?a=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: 8\r\n\r\n"
    answer = serve([head.encode(), b'{"a": 1}'])
    assert (answer.status, json.loads(answer.body)["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("coding", ["gzip", "br", "gzip, identity"])
def test_compressed_bodies_are_refused(client: Client, coding: str) -> None:
    response = post(client, "/v1/echo", b'{"a": 1}', **{"Content-Encoding": coding})
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")


def test_no_charset_of_a_caller_decides_how_addresses_and_forms_are_read() -> None:
    body = "a=ü".encode()
    head = (
        "POST /v1/forms HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/x-www-form-urlencoded; charset=utf-16\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = serve([head.encode(), body])
    assert (answer.status, json.loads(answer.body)) == (200, {"a": "ü"})
