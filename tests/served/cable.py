"""A cable between a service and a server that it needs, which a test can pull out, put back, and make slow or worse."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from tests.served.database import Database

HOST = "127.0.0.1"
BUFFER = 65_536
DRIP_SECONDS = 1.0


class Cable:
    """``url`` leads through it. Pulled out, every connection is reset and new ones are refused.

    ``far`` is the address of the server: with the socket of a PostgreSQL, or with host and port. Further ways to be
    ill: ``delay``, seconds before each part of an answer; ``drips``, a byte of an answer a second; ``resets`` each
    connection as soon as something is asked. ``tap`` is called with each part, and whether it is one of an answer,
    before that is passed on; it says whether it is.
    """

    def __init__(self, far: str) -> None:
        self.far = far
        self.delay = 0.0
        self.drips = self.resets = False
        self.tap: Callable[[bool], bool] | None = None
        self._flows = threading.Event()
        self._flows.set()
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._listener = socket.create_server((HOST, 0))
        self._port = self._listener.getsockname()[1]
        parts = urlsplit(far)
        user = f"{parts.username}@" if parts.username else ""
        self.url = parts._replace(netloc=f"{user}{HOST}:{self._port}").geturl()
        self._listen()

    def pull(self) -> None:
        # Shut down first, which is what wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Ends every connection that there is; new ones are taken."""
        with self._lock:
            for end in self._ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def put_back(self) -> None:
        self._listener = socket.create_server((HOST, self._port))
        self._listen()

    def freeze(self) -> None:
        """Connections and bytes are taken, and nothing arrives."""
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def _listen(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = self._reach()
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self._ends |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(
                        target=self._pump, args=(source, sink, source is far), daemon=True
                    ).start()

    def _reach(self) -> socket.socket:
        parts = urlsplit(self.far)
        host = unquote(parts.hostname or "")
        if not host.startswith("/"):
            return socket.create_connection((host, parts.port or 80))
        with contextlib.ExitStack() as stack:
            far = stack.enter_context(socket.socket(socket.AF_UNIX))
            far.connect(f"{host}/.s.PGSQL.5432")
            stack.pop_all()
        return far

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(BUFFER):
                if self.resets and not is_answer:
                    source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    source.close()
                    break
                self._carry(data, sink, is_answer)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        # The second thread closes both, so that no number is used again while the other still uses it.
        with self._lock:
            if source in self._ends:
                self._ends.discard(source)
            else:
                return
            if sink in self._ends:
                return
        source.close()
        sink.close()

    def _carry(self, data: bytes, sink: socket.socket, is_answer: bool) -> None:
        tap = self.tap
        if tap is not None and not tap(is_answer):
            return
        self._flows.wait()
        if is_answer:
            time.sleep(self.delay)
            while self.drips and data:
                sink.sendall(data[:1])
                data = data[1:]
                time.sleep(DRIP_SECONDS)
        sink.sendall(data)


@contextmanager
def new_cable(database: Database) -> Iterator[Cable]:
    with cable_to(database.url) as cable:
        yield cable


@contextmanager
def cable_to(far: str) -> Iterator[Cable]:
    cable = Cable(far)
    try:
        yield cable
    finally:
        cable.thaw()
        cable.pull()
