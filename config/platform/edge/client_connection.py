"""A client's connection that sends the head of an answer together with the beginning of its body.

gunicorn sends them separately, and most of the cost of a small answer is waking the receiver.
"""

from errno import EBADF
from socket import socket
from typing import Any

CONTINUE = b"HTTP/1.1 100 "
HEAD_BYTES = 256


class ClientConnection(socket):
    """Buffers the bytes after ``hold`` until more follow, or ``flush``."""

    _holds = False
    _buffered = b""
    _refuses_body = False
    # The first bytes of the current request, for the answer to a malformed one.
    head = b""

    def hold(self) -> None:
        """Buffers the next send."""
        self._holds = True

    def flush(self) -> None:
        """Sends the buffer, unless the connection has been closed."""
        self._holds = False
        if self._buffered and self.fileno() >= 0:
            self.sendall(b"")

    def begin(self) -> None:
        """Waits for the next request."""
        self._refuses_body, self.head = False, b""

    def refuse_body(self) -> None:
        """Suppresses gunicorn's ``100 Continue``."""
        self._refuses_body = True

    def send(self, data: Any, *args: Any, **options: Any) -> int:
        if self._refuses_body and bytes(data[: len(CONTINUE)]) == CONTINUE:
            return len(data)
        return super().send(data, *args, **options)

    def sendall(self, data: Any, flags: int = 0) -> None:
        if self._holds:
            self._holds, self._buffered = False, data
            return
        if self._buffered:
            data, self._buffered = self._buffered + data, b""
        # gevent's ``sendall`` first queries the size of the connection's buffer, which a chunk fits.
        sent = self.send(data, flags)
        if sent < len(data):
            super().sendall(memoryview(data)[sent:], flags)

    def recv(self, *args: Any) -> bytes:
        data = self._received(*args)
        if len(self.head) < HEAD_BYTES:
            self.head += data[:HEAD_BYTES]
        return data

    def _received(self, *args: Any) -> bytes:
        try:
            return super().recv(*args)
        except OSError as error:
            # gevent wakes a waiting reader when a stopping worker closes this side. Received bytes stay readable.
            if error.errno != EBADF or self.fileno() < 0:
                raise
            return super().recv(*args)

    def sendfile(self, *args: Any, **options: Any) -> int:
        self.flush()
        return super().sendfile(*args, **options)
