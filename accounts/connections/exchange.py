"""One form posted to a provider and its answer, within a time and a size.

No redirects, no proxies or credentials of the environment, no retries, no cookies. Whatever the server does,
the call ends in time: each silence has a limit, and a watchdog cuts the connection of one that keeps sending a
little. Nothing that is raised here holds an address, a header or a body.
"""

import json
import ssl
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR, socket
from threading import Timer
from typing import Any
from urllib.parse import urlencode, urlsplit

from authlib.oauth2 import ClientAuth

CONNECT_SECONDS = 5.0
# For everything together. A lease of a refresh lasts longer than this.
MOST_SECONDS = 15.0
MOST_BYTES = 64 * 1024
HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/x-www-form-urlencoded",
    "User-Agent": "shell-connections",
}


class NoAnswer(Exception):
    """There is none. ``timed_out``: for lack of time; ``sent``: the provider may have done what was asked."""

    def __init__(self, *, timed_out: bool, sent: bool) -> None:
        self.timed_out = timed_out
        self.sent = sent
        super().__init__("timed out" if timed_out else "no answer")


class Answer:
    """An answer as far as it matters, in the form in which Authlib reads answers."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status_code = status
        self.headers = headers
        self._body = body

    def json(self) -> Any:
        """The document of the body; raises ValueError where it is none."""
        try:
            return json.loads(self._body)
        except RecursionError:
            raise ValueError("nested too deep") from None

    def members(self) -> dict[str, Any]:
        """The document's members; none where it is no object."""
        try:
            document = self.json()
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}


class Session:
    """What Authlib's client posts through. ``answer`` is the last answer, ``None`` before there is one."""

    def __init__(self) -> None:
        self.answer: Answer | None = None

    def post(
        self,
        url: str,
        data: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        auth: ClientAuth | None = None,
    ) -> Answer:
        """Posts a form with the client's authentication. Raises ``NoAnswer``."""
        said: Any = (url, {**HEADERS}, urlencode(data))
        if auth is not None:
            said = auth.prepare("POST", *said)
        self.answer = post(*said)
        return self.answer


def post(url: str, headers: Mapping[str, str], body: str) -> Answer:
    """Posts a form's body. Raises ``NoAnswer``."""
    deadline, sent = time.monotonic() + MOST_SECONDS, False
    parts = urlsplit(url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    with closing(_connection(parts.scheme, parts.hostname or "", parts.port)) as connection:
        try:
            connection.connect()
            watchdog = _watchdog(connection, deadline)
            try:
                sent = True
                connection.request("POST", path, body=body.encode("ascii"), headers=dict(headers))
                with connection.getresponse() as response:
                    return _read(response, deadline)
            finally:
                watchdog.cancel()
        except (OSError, HTTPException) as error:
            late = isinstance(error, TimeoutError) or time.monotonic() >= deadline
            raise NoAnswer(timed_out=late, sent=sent) from None


def _connection(scheme: str, host: str, port: int | None) -> HTTPConnection:
    if scheme == "https":
        context = ssl.create_default_context()
        return HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=context)
    return HTTPConnection(host, port, timeout=CONNECT_SECONDS)


def _watchdog(connection: HTTPConnection, deadline: float) -> Timer:
    """Cuts the connection at the deadline. Raises ``TimeoutError`` where that is over: nothing may be sent then."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    # From here on a silence may last as long as there is time.
    connection.sock.settimeout(seconds)
    watchdog = Timer(seconds, _cut, [connection.sock])
    watchdog.daemon = True
    watchdog.start()
    return watchdog


def _read(response: HTTPResponse, deadline: float) -> Answer:
    body = response.read(MOST_BYTES + 1)
    if time.monotonic() >= deadline:
        raise TimeoutError
    if len(body) > MOST_BYTES or response.length:
        # Too long, or cut off: no whole answer either way.
        raise HTTPException
    return Answer(response.status, dict(response.headers.items()), body)


def _cut(sock: socket) -> None:
    with suppress(OSError):
        # Not the TLS socket's own method, which drops the encryption first.
        socket.shutdown(sock, SHUT_RDWR)
