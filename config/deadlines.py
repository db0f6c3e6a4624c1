"""A connection to somebody's HTTP server that is over in time, whatever the server does.

A limit to each silence does not end one that keeps sending a little, so a watchdog cuts the connection at its deadline.
It is there before the handshake of TLS, in which gevent begins to count anew with every byte. No proxies or credentials
of the environment, no redirects, no retries, no cookies.
"""

import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPSConnection
from socket import SHUT_RDWR, socket
from threading import Timer
from urllib.parse import SplitResult

# For each address of a name: one that answers nothing leaves time for the next. TCP asks again after 1 and 3 s.
CONNECT_SECONDS = 4.0


@contextmanager
def connected(address: SplitResult, *, silence: float, deadline: float) -> Iterator[HTTPConnection]:
    """A connection to the server of an address, past TLS, where it has proved its name.

    It waits ``silence`` seconds at most for the next bytes, and is cut at ``deadline`` on the monotonic clock. Raises
    ``OSError``, and of those ``TimeoutError`` where the time is over before anything could be sent.
    """
    patience = min(CONNECT_SECONDS, silence, seconds_left(deadline))
    with closing(_connection(address, patience)) as connection:
        connection.connect()
        connection.sock.settimeout(min(silence, seconds_left(deadline)))
        watchdog = Timer(seconds_left(deadline), _cut, [connection.sock])
        watchdog.daemon = True
        watchdog.start()
        try:
            if isinstance(connection, _TLSConnection):
                connection.sock.do_handshake()
            yield connection
        finally:
            watchdog.cancel()


def seconds_left(deadline: float) -> float:
    """Seconds until a deadline; raises ``TimeoutError`` where there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def target(address: SplitResult) -> str:
    """What an address asks its server for."""
    path = address.path or "/"
    return f"{path}?{address.query}" if address.query else path


class _TLSConnection(HTTPSConnection):
    """Connects up to the handshake, which is left to whoever can cut it."""

    def __init__(self, host: str, port: int | None, *, timeout: float) -> None:
        self._tls = ssl.create_default_context()
        super().__init__(host, port, timeout=timeout, context=self._tls)

    def connect(self) -> None:
        HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(
            self.sock, server_hostname=self.host, do_handshake_on_connect=False
        )


def _connection(address: SplitResult, timeout: float) -> HTTPConnection:
    kind = _TLSConnection if address.scheme == "https" else HTTPConnection
    return kind(address.hostname or "", address.port, timeout=timeout)


def _cut(sock: socket) -> None:
    with suppress(OSError):
        # Not the TLS socket's own method, which drops the encryption first.
        socket.shutdown(sock, SHUT_RDWR)
