import logging
import re
import threading
from collections.abc import Iterator
from typing import Any, cast
from uuid import uuid4

import gevent
import pytest
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.base import SessionBase
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import include, path, re_path
from django.utils.functional import SimpleLazyObject

from config.platform.edge import request_log
from config.platform.edge.outermost import EdgeMiddleware
from config.platform.problems import rendering as handlers
from config.platform.request import request_id as request_ids
from tests.platform.written import Written

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LOG = logging.getLogger("tests.rules")
SECRET = "s3cr3t-in-the-path"


def plain(request: HttpRequest, **_: str) -> HttpResponse:
    LOG.info("a rule at work")
    return HttpResponse(b"12345")


def failing(request: HttpRequest) -> HttpResponse:
    raise RuntimeError


def streaming(request: HttpRequest) -> StreamingHttpResponse:
    def chunks() -> Iterator[bytes]:
        yield b"123"
        LOG.info("in mid-stream")
        yield b"4567"

    return StreamingHttpResponse(chunks())


def breaking(request: HttpRequest) -> StreamingHttpResponse:
    def chunks() -> Iterator[bytes]:
        yield b"123"
        raise RuntimeError

    return StreamingHttpResponse(chunks())


def a_file(request: HttpRequest) -> FileResponse:
    return FileResponse(open(__file__, "rb"))  # noqa: PTH123 - the answer closes it


inner = [path("things/<str:token>", plain, name="thing")]
urlpatterns = [
    path("named/", include((inner, "accounts"))),
    path("nameless/<str:token>", plain),
    re_path(r"pattern/(?P<number>[0-9]+)$", plain),
    path("failing", failing),
    path("streaming", streaming),
    path("breaking", breaking),
    path("file", a_file),
]
handler404 = handlers.page_not_found
handler500 = handlers.server_error


@pytest.fixture(autouse=True)
def _own_addresses() -> Iterator[None]:
    with override_settings(ROOT_URLCONF=__name__, SECURE_SSL_REDIRECT=False):
        yield


@pytest.fixture(autouse=True)
def _without_database() -> Iterator[None]:
    """As Django's test client does it: answers are closed without looking at the connection of the test."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


def served(address: str, **environ: Any) -> Any:
    """The answer as a WSGI server gets it, not yet read or closed."""
    request = RequestFactory().get(address)
    return WSGIHandler()(
        {**request.environ, "SERVER_NAME": "localhost", **environ}, lambda *_: None
    )


@pytest.mark.parametrize(
    "given", ["a1B2c3D4", "550e8400-e29b-41d4-a716-446655440000", "x" * 64, "build_7.retry-2"]
)
def test_a_well_formed_id_of_the_caller_is_kept(client: Client, given: str) -> None:
    assert client.get("/nameless/x", headers={"X-Request-ID": given})["X-Request-ID"] == given


@pytest.mark.parametrize(
    "given",
    [
        "",
        "short",
        "x" * 65,
        "with space",
        "line\nfeed-line",
        'quote"quote',
        "ünïcödé-id",
        "eight.ch\n",
    ],
)
def test_any_other_id_is_replaced_by_a_new_one(client: Client, given: str) -> None:
    answered = client.get("/nameless/x", headers={"X-Request-ID": given})["X-Request-ID"]
    assert UUID.fullmatch(answered)


@pytest.mark.parametrize(
    "address", ["/nameless/x", "/failing", "/nothing", "/streaming", "/healthz", "/file"]
)
def test_every_answer_carries_an_id(client: Client, address: str) -> None:
    response = client.get(address)
    assert b"".join(response)
    assert UUID.fullmatch(response["X-Request-ID"])


def test_a_refused_host_carries_an_id_too(client: Client) -> None:
    response = client.get("/nameless/x", headers={"Host": "elsewhere.example"})
    assert response.status_code == 400
    assert response["X-Request-ID"] == response.json()["request_id"]


def test_log_lines_of_rules_carry_the_request_id(client: Client, written: Written) -> None:
    given = str(uuid4())
    client.get("/nameless/x", headers={"X-Request-ID": given})
    assert [line["request_id"] for line in written.lines()] == [given, given]


def test_a_request_is_one_line_with_its_route_and_never_its_path(
    client: Client, written: Written
) -> None:
    client.get(f"/named/things/{SECRET}?token={SECRET}", REMOTE_ADDR="192.0.2.7")
    (line,) = written.requests()
    assert (line["method"], line["route"], line["status"], line["bytes"]) == (
        "GET",
        "accounts:thing",
        200,
        5,
    )
    assert line["address"] == "192.0.2.7"
    assert line["duration_ms"] >= 0
    assert "user" not in line
    assert "problem" not in line
    assert SECRET not in written.getvalue()


@pytest.mark.parametrize(
    ("address", "problem"), [("/no/such", "not_found"), ("/failing", "internal_error")]
)
def test_the_line_of_a_refused_request_says_which_problem_it_got(
    client: Client, written: Written, address: str, problem: str
) -> None:
    assert client.get(address).json()["code"] == problem
    (line,) = written.requests()
    assert line["problem"] == problem


@pytest.mark.parametrize(
    ("address", "route", "status"),
    [
        ("/pattern/7", "pattern/(?P<number>[0-9]+)$", 200),
        ("/nameless/s", "nameless/<str:token>", 200),
        (f"/no/{SECRET}", "-", 404),
        ("/failing", "failing", 500),
    ],
)
def test_routes_without_a_name_are_logged_by_their_pattern(
    client: Client, written: Written, address: str, route: str, status: int
) -> None:
    client.get(address)
    (line,) = written.requests()
    assert (line["route"], line["status"]) == (route, status)


def test_unknown_methods_are_not_repeated(client: Client, written: Written) -> None:
    client.generic("CANARY", "/nameless/x")
    assert written.requests()[0]["method"] == "OTHER"


def test_the_line_of_a_stream_is_written_when_it_has_ended(written: Written) -> None:
    answer = served("/streaming", HTTP_X_REQUEST_ID="stream-0001")
    assert written.requests() == []
    assert b"".join(answer) == b"1234567"
    assert written.requests() == []
    answer.close()
    (line,) = written.requests()
    assert (line["bytes"], line["ended"], line["request_id"]) == (7, "done", "stream-0001")
    assert {line["request_id"] for line in written.lines()} == {"stream-0001"}


def test_a_request_whose_facts_fail_is_still_logged(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> dict[str, object]:
        raise RuntimeError

    monkeypatch.setattr(request_log, "address_of", fail)
    response = served("/named/things/secret")
    response.close()
    assert [
        line["level"] for line in written.lines() if line["event"] == "request_without_facts"
    ] == ["error"]


def test_a_stream_whose_client_left_is_logged_as_cut(written: Written) -> None:
    answer = served("/streaming")
    assert next(iter(answer)) == b"123"
    answer.close()
    (line,) = written.requests()
    assert (line["bytes"], line["ended"]) == (3, "cut")


def test_a_broken_stream_is_logged_as_failed(written: Written) -> None:
    answer = served("/breaking")
    with pytest.raises(RuntimeError):
        list(answer)
    answer.close()
    assert written.requests()[0]["ended"] == "failed"


@pytest.mark.parametrize(("told", "ended"), [("access_revoked", "access_revoked"), (None, "done")])
def test_a_view_may_report_how_its_stream_ended(
    written: Written, told: str | None, ended: str
) -> None:
    def view(request: HttpRequest) -> StreamingHttpResponse:
        response = streaming(request)
        response.how_ended = lambda: told  # type: ignore[attr-defined]
        return response

    answer = EdgeMiddleware(view)(RequestFactory().get("/"))
    assert b"".join(cast("StreamingHttpResponse", answer)) == b"1234567"
    answer.close()
    assert written.requests()[0]["ended"] == ended


def test_an_answer_that_is_closed_twice_is_one_line(written: Written) -> None:
    answer = served("/nameless/x")
    answer.close()
    answer.close()
    assert len(written.requests()) == 1


def test_a_file_is_left_to_the_server(client: Client, written: Written) -> None:
    answer = served("/file", **{"wsgi.file_wrapper": lambda file, size: file})
    assert answer.name == __file__
    answer.close()
    assert written.requests()[0]["bytes"] > 1000


class Someone:
    pk = uuid4()


def user_in_line(written: Written, user: Any, **state: Any) -> Any:
    """Returns the user in the log line, as a view found them."""

    def view(request: HttpRequest) -> HttpResponse:
        request.user = user
        request.__dict__.update(state)
        return HttpResponse()

    EdgeMiddleware(view)(RequestFactory().get("/")).close()
    return written.requests()[0].get("user")


def test_the_line_has_the_id_of_the_caller(written: Written) -> None:
    assert user_in_line(written, Someone()) == str(Someone.pk)


@pytest.mark.parametrize("user", [None, AnonymousUser()])
def test_the_line_of_an_anonymous_request_has_no_user(written: Written, user: Any) -> None:
    assert user_in_line(written, user) is None


def test_a_log_line_causes_no_query(written: Written) -> None:
    lazy = SimpleLazyObject(lambda: pytest.fail("looked up"))
    assert user_in_line(written, lazy, session=SessionBase()) is None


@pytest.mark.parametrize("read", [True, False])
def test_a_person_on_a_page_is_logged_once_the_session_was_read(
    written: Written, read: bool
) -> None:
    lazy = SimpleLazyObject(lambda: pytest.fail("looked up"))
    session = SessionBase()
    session.update({SESSION_KEY: str(Someone.pk)})
    session.accessed = read
    assert user_in_line(written, lazy, session=session) == (str(Someone.pk) if read else None)


def test_concurrent_requests_keep_separate_ids() -> None:
    meet = threading.Barrier(4, timeout=60)
    seen: dict[str, str] = {}

    def serve(name: str) -> None:
        def view(request: HttpRequest) -> HttpResponse:
            meet.wait()
            seen[name] = request_ids.current()
            return HttpResponse()

        EdgeMiddleware(view)(RequestFactory().get("/", headers={"X-Request-ID": name}))

    threads = [threading.Thread(target=serve, args=(f"thread-{n:04}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(seen) == 4
    assert all(name == current for name, current in seen.items())


def test_greenlets_of_one_thread_keep_separate_ids() -> None:
    seen: dict[str, str] = {}

    def serve(name: str) -> None:
        def view(request: HttpRequest) -> HttpResponse:
            gevent.sleep(0)
            seen[name] = request_ids.current()
            return HttpResponse()

        EdgeMiddleware(view)(RequestFactory().get("/", headers={"X-Request-ID": name}))

    gevent.joinall(
        [gevent.spawn(serve, f"greenlet-{n:04}") for n in range(4)], timeout=60, raise_error=True
    )
    assert len(seen) == 4
    assert all(name == current for name, current in seen.items())
