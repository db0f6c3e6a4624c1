"""A connection to a provider that another thread can cut, whatever is being waited for.

Closing a response does not wake a thread that is blocked on its socket, and before the headers
there is no response to close. So each exchange has a `Line`, which is told of its socket before the
socket is first waited on. urllib3 makes the socket in the thread that uses it, which is how its
classes find the line they work for.
"""

import contextlib
import socket
import ssl
import threading
import time
from http.client import RemoteDisconnected
from typing import Any

from gevent.hub import Waiter, get_hub

# The most bytes that are received at once.
RECEIVED = 16 * 1024
LEAST_WAIT = 0.001
# Of what has come at the same time, the loop sees to the rest of an answer last: for the beginning of another, and for
# all other requests, it has to come round several times. Only what limits the wait comes later: bytes are no silence.
AS_OTHERS, AFTER_OTHERS, AFTER_ALL = 0, -1, -2


class LineCutError(Exception):
    """The line was cut before its socket could be used."""


class Line:
    """The socket under one exchange, its time limits, and how far its request has got.

    One thread uses the socket; any thread may `cut`. `deadline` is on the monotonic clock.
    `connected`: past name lookup, connection and TLS. `sent`: the whole request may be on its way.
    `heard`: a byte of the answer has come. `answering`: so has one of its body. `is_reused`: the
    connection has served another exchange before. `fresh`: no such connection is to be used.
    """

    def __init__(
        self,
        *,
        connect_timeout: float,
        first_byte_timeout: float,
        read_timeout: float,
        deadline: float,
    ) -> None:
        self.deadline = deadline
        self.fresh = False
        self.answering = False
        self._connect_timeout = connect_timeout
        self._first_byte_timeout = first_byte_timeout
        self._read_timeout = read_timeout
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._gone = threading.Event()
        # Seconds that have been waited for the next bytes of a body.
        self._silence = 0.0
        self._begin(time.monotonic())

    def _begin(self, when: float) -> None:
        self.connected = self.sent = self.heard = self.is_reused = False
        self._asked_at = when
        self._connect_by = min(when + self._connect_timeout, self.deadline)

    def try_again(self, wait: float) -> None:
        """Begin anew on a new connection after `wait` seconds; raises LineCutError if cut by then."""
        self.let_go()
        self.fresh = True
        self._begin(time.monotonic() + wait)
        self._gone.wait(wait)
        self.check()

    def use(self, sock: socket.socket, *, is_reused: bool) -> None:
        """The request goes out on `sock` from now on."""
        self.hold(sock)
        self.connected = self.sent = True
        self.is_reused = is_reused
        self._asked_at = time.monotonic()

    def lasted(self) -> float:
        """Seconds since the request began to be sent."""
        return time.monotonic() - self._asked_at

    def limit(self) -> float:
        """The monotonic time at which the present stage is over, whatever happens."""
        return self.deadline if self.connected else self._connect_by

    def patience(self) -> float:
        """Seconds that one wait on the socket may take; raises TimeoutError when there are none."""
        left = self.limit() - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if not self.connected:
            return left
        return min(left, self._read_timeout if self.answering else self._first_byte_timeout)

    def send(self, data: bytes) -> None:
        """Send the whole request; where that fails, the provider cannot have all of it."""
        sock = self._taken()
        try:
            sock.settimeout(self.patience())
            sock.sendall(data)
        except BaseException:
            self.sent = False
            raise

    def hear(self) -> bytes:
        """The next bytes of the head of the answer, with what has come behind it."""
        sock = self._taken()
        sock.settimeout(self.patience())
        data = sock.recv(RECEIVED)
        self.check()
        if not data:
            raise RemoteDisconnected("")
        self.heard = True
        return data

    def receive(self, wait: float) -> bytes | None:
        """The next bytes, b"" after the last; None after `wait` seconds without any.

        Raises TimeoutError after as much silence as there may be, and at the deadline. The time in which nobody
        waits is no silence. It can be called again after a None; what `http.client` reads with cannot.
        """
        if (sock := self._sock) is None:
            raise LineCutError
        most = self._read_timeout if self.answering else self._first_byte_timeout
        began = time.monotonic()
        patience = min(most - self._silence, self.deadline - began)
        # Not zero, which would mean not to wait at all.
        limit = max(LEAST_WAIT, min(wait, patience))
        sock.settimeout(limit)
        try:
            _wait_for(sock, limit)
            data = sock.recv(RECEIVED)
        except TimeoutError:
            self._silence += time.monotonic() - began
            if wait < patience:
                return None
            raise
        self._silence = 0.0
        self.answering = True
        return data

    def _taken(self) -> socket.socket:
        if (sock := self._sock) is None:
            raise LineCutError
        return sock

    def hold(self, sock: socket.socket) -> None:
        """Make `sock` the one to cut; raises LineCutError if that has been asked for already."""
        with self._lock:
            self.check()
            self._sock = sock

    def check(self) -> None:
        """Raise LineCutError after a cut."""
        if self._gone.is_set():
            raise LineCutError

    def let_go(self) -> None:
        """Forget the socket: it goes back to the pool, where others may take it."""
        with self._lock:
            self._sock = None

    def cut(self) -> None:
        """Shut the connection down at once and wake the thread that waits on it; idempotent."""
        with self._lock:
            self._gone.set()
            sock, self._sock = self._sock, None
            if sock is not None:
                # Not the TLS socket's own method: that drops the encryption first, and a thread
                # in the middle of sending would go on in plain text.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _wait_for(sock: Any, seconds: float) -> None:
    """Waits for the next bytes, nearly none of which are there already. Raises TimeoutError.

    gevent's sockets look first, and make an error of it and a timeout of several objects for each time they wait.
    """
    event = getattr(sock, "_read_event", None)
    if event is None or (isinstance(sock, ssl.SSLSocket) and sock.pending()):
        return
    hub = get_hub()
    waiter, timer = Waiter(hub), hub.loop.timer(seconds, priority=AFTER_ALL)
    event.priority = AFTER_OTHERS
    event.start(waiter.switch, waiter)
    timer.start(waiter.throw, TimeoutError)
    try:
        waiter.get()
    finally:
        event.stop()
        event.priority = AS_OTHERS
        timer.close()


class _Current(threading.local):
    line: Line


_current = _Current()


def work_for(line: Line) -> None:
    """Say which line the connections used by this thread belong to from now on."""
    _current.line = line


def current_line() -> Line:
    """The line that this thread works for."""
    return _current.line


class TLSSocket(ssl.SSLSocket):
    """A socket over TLS that can be cut during the handshake already."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is in ssl
        _current.line.hold(self)
        self.settimeout(_current.line.patience())
        super().do_handshake()
