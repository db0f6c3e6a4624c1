"""How gunicorn reads a request and sends an answer, where its own way does more than this service needs.

What is accepted and what an answer looks like are gunicorn's; only the way there is shorter. An answer's head goes
out together with the beginning of its body: two packets would be two system calls, and would wake its reader twice.
"""

import time
from collections.abc import Iterable
from functools import cache, lru_cache
from http import HTTPStatus
from socket import socket

from gunicorn.http import wsgi
from gunicorn.http.errors import InvalidResponseHeader, InvalidResponseHeaderName
from gunicorn.http.message import TOKEN_RE, Request
from gunicorn.http.parser import RequestParser
from gunicorn.util import http_date, is_hoppish

LENGTH = "content-length"


class Incoming(Request):  # type: ignore[misc]  # gunicorn has no types
    """A request of nobody whom gunicorn would believe: who is a proxy is for config.middleware to know."""

    def _peer_is_trusted_proxy(self) -> bool:
        # What is in no list need not be looked up in it, and be taken apart for that.
        return False


class Answer(wsgi.Response):  # type: ignore[misc]  # gunicorn has no types
    """An answer whose head waits for the first bytes of its body. Without any it is sent alone."""

    headers_sent: bool
    _head = b""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        # To a HEAD Django says the whole of its answer, and whoever asks so would fill the log.
        self._omits_body_warned = True

    def process_headers(self, headers: Iterable[tuple[str, str]]) -> None:
        for name, value in headers:
            meaning = _meaning(name)
            if not wsgi.HEADER_VALUE_RE.fullmatch(value):
                # Its name only: the value may be a secret.
                raise InvalidResponseHeader(repr(name))
            if meaning is None:
                continue
            if meaning == LENGTH and self.status_code == HTTPStatus.NOT_MODIFIED:
                # It would be that of the whole answer (RFC 9110, 8.6), and Django says that of none.
                continue
            if meaning == LENGTH:
                self.response_length = int(value)
            self.headers.append((name, value))

    def write(self, arg: bytes) -> None:
        if self.chunked and self.headers_sent:
            # As of the second of a stream, of which there are many more than of anything else.
            if arg:
                self.sent += len(arg)
                _send(self.sock, b"%X\r\n%b\r\n" % (len(arg), arg))
            return
        if not (self.headers_sent or self._omits_body or self.response_length == 0) and arg:
            self._head = self._first_bytes()
            self.headers_sent = True
        super().write(arg)

    def send_headers(self) -> None:
        if not self.headers_sent:
            _send(self.sock, self._first_bytes())
            self.headers_sent = True

    def _emit_body(self, data: bytes) -> None:
        head, self._head = self._head, b""
        if self.chunked:
            data = b"%X\r\n%b\r\n" % (len(data), data)
        _send(self.sock, head + data if head else data)

    def _first_bytes(self) -> bytes:
        major, minor = self.req.version
        lines = [
            f"HTTP/{major}.{minor} {self.status}",
            f"Server: {self.version}",
            f"Date: {_date(int(time.time()))}",
            f"Connection: {'close' if self.should_close() else 'keep-alive'}",
        ]
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
        lines += [f"{name}: {value}" for name, value in self.headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def install() -> None:
    """From here on gunicorn reads and answers like this."""
    RequestParser.mesg_class = Incoming
    wsgi.Response = Answer
    # It remembers nothing of a request, and is looked for at each.
    wsgi.WSGIErrorsWrapper = cache(wsgi.WSGIErrorsWrapper)


@lru_cache(maxsize=256)
def _meaning(name: str) -> str | None:
    """What a header is to the server: its name in small letters, or None where it is the server's own to say."""
    if not TOKEN_RE.fullmatch(name):
        raise InvalidResponseHeaderName(repr(name))
    return None if is_hoppish(name) else name.lower()


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return str(http_date(second))


def _send(to: socket, data: bytes) -> None:
    """All of it. Nearly always it goes at once, and ``sendall`` would first ask how much does."""
    sent = to.send(data)
    if sent < len(data):
        to.sendall(memoryview(data)[sent:])
