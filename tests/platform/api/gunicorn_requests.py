"""Requests as gunicorn reads them off a connection, served by the application in this process."""

from collections.abc import Iterable
from functools import cache
from types import SimpleNamespace
from typing import Any

from django.core.wsgi import get_wsgi_application
from gunicorn.config import Config
from gunicorn.http.parser import RequestParser
from gunicorn.http.wsgi import create

from config.platform.edge.body_limits import Application, with_readable_bodies


def serve(raw: Iterable[bytes]) -> SimpleNamespace:
    """The answer to a raw request: status, headers and body."""
    config = Config()
    request = next(RequestParser(config, iter(raw), ("192.0.2.1", 4711)))
    sock = SimpleNamespace(getsockname=lambda: ("127.0.0.1", 8000))
    _, environ = create(request, sock, ("192.0.2.1", 4711), ("127.0.0.1", "8000"), config)
    answer = SimpleNamespace()

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
        answer.status, answer.headers = int(status[:3]), dict(headers)

    response: Any = _application()(environ, start_response)
    answer.body = b"".join(response)
    response.close()
    return answer


def chunked(
    path: str, *chunks: bytes, method: str = "POST", end: bytes = b"0\r\n\r\n"
) -> list[bytes]:
    """A request with a chunked body, in the pieces in which it arrives."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    return [head.encode(), *(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks), end]


@cache
def _application() -> Application:
    return with_readable_bodies(get_wsgi_application())
