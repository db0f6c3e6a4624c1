"""What the server is told of a response."""

import io
from collections.abc import Iterable
from typing import Any

import pytest
from django.core.signals import request_finished, request_started
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase
from django.test import RequestFactory, override_settings
from django.urls import clear_script_prefix, path, reverse
from gunicorn.http.wsgi import FileWrapper

from config.entrance import Entrance


def cookies(request: HttpRequest) -> HttpResponseBase:
    response = HttpResponse(b"body", headers={"X-Name": "value", "x-name": "the later"})
    response.set_cookie("a", "1")
    response.set_cookie("b", "2", httponly=True)
    return response


def file(request: HttpRequest) -> HttpResponseBase:
    return FileResponse(io.BytesIO(b"bytes of a file"))


def here(request: HttpRequest) -> HttpResponseBase:
    return HttpResponse(reverse("here"))


urlpatterns = [path("cookies", cookies), path("file", file), path("here", here, name="here")]


@pytest.fixture(autouse=True)
def entrance() -> Iterable[Entrance]:
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[]):
        yield Entrance()
    clear_script_prefix()


def called(entrance: Entrance, at: str, **environ: Any) -> tuple[str, list[tuple[str, str]], Any]:
    told: list[Any] = []
    asked = RequestFactory().get(at, **environ).environ
    body = entrance(asked, lambda status, headers: told.extend((status, headers)))
    return told[0], told[1], body


def test_status_headers_and_each_cookie(entrance: Entrance) -> None:
    status, headers, body = called(entrance, "/cookies")

    assert status == "200 OK"
    assert dict(headers[:2]) == {
        "Content-Type": "text/html; charset=utf-8",
        "x-name": "the later",
    }
    assert [name for name, _ in headers[2:]] == ["Set-Cookie", "Set-Cookie"]
    assert [value for _, value in headers[2:]] == ["a=1; Path=/", "b=2; HttpOnly; Path=/"]
    assert b"".join(body) == b"body"


@pytest.mark.django_db
def test_a_file_is_the_servers_to_send_and_closing_it_ends_the_request(entrance: Entrance) -> None:
    ended: list[Any] = []
    note = lambda sender, **_: ended.append(sender)  # noqa: E731 - kept by the signal as long as it has this name
    request_finished.connect(note)

    _, _, body = called(entrance, "/file", **{"wsgi.file_wrapper": FileWrapper})
    assert isinstance(body, FileWrapper)
    assert b"".join(body) == b"bytes of a file"
    assert not ended
    body.close()
    request_finished.disconnect(note)

    assert ended == [Entrance]


def test_a_server_without_such_a_way_sends_it_itself(entrance: Entrance) -> None:
    _, _, body = called(entrance, "/file", **{"wsgi.file_wrapper": None})

    assert b"".join(body) == b"bytes of a file"


def test_who_listens_hears_of_a_request(entrance: Entrance) -> None:
    begun: list[str] = []
    note = lambda environ, **_: begun.append(environ["PATH_INFO"])  # noqa: E731 - kept as long as it has this name
    request_started.connect(note)

    called(entrance, "/here")
    request_started.disconnect(note)

    assert begun == ["/here"]


@pytest.mark.parametrize("prefix", ["", "/below"])
def test_addresses_begin_where_the_service_does(entrance: Entrance, prefix: str) -> None:
    _, _, body = called(entrance, "/here", SCRIPT_NAME=prefix)

    assert b"".join(body) == f"{prefix}/here".encode()


def test_what_the_server_does_not_take_is_closed_here(entrance: Entrance) -> None:
    finished: list[Any] = []

    def refuse(status: str, headers: list[tuple[str, str]]) -> None:
        raise ValueError

    def note(**_: Any) -> None:
        finished.append(True)

    request_finished.connect(note)
    try:
        with pytest.raises(ValueError):
            entrance(RequestFactory().get("/cookies").environ, refuse)
    finally:
        request_finished.disconnect(note)
    assert finished == [True]
