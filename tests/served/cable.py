"""A cable between a service and its database, which a test can pull out and put back."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from tests.served.database import Database

HOST = "127.0.0.1"
BUFFER = 65_536


class Cable:
    """``url`` leads through it. Pulled out, every connection is reset and new ones are refused."""

    def __init__(self, database: Database) -> None:
        parts = urlsplit(database.url)
        self._socket = f"{unquote(parts.hostname or '')}/.s.PGSQL.5432"
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._listener = socket.create_server((HOST, 0))
        self._port = self._listener.getsockname()[1]
        self.url = parts._replace(netloc=f"{parts.username}@{HOST}:{self._port}").geturl()
        self._listen()

    def pull(self) -> None:
        # Shut down first, which is what wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for end in self._ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def put_back(self) -> None:
        self._listener = socket.create_server((HOST, self._port))
        self._listen()

    def _listen(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._socket)
                with self._lock:
                    self._ends |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(BUFFER):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        # Whoever comes second closes both, so that no number is used again under the other's hands.
        with self._lock:
            if source in self._ends:
                self._ends.discard(source)
            else:
                return
            if sink in self._ends:
                return
        source.close()
        sink.close()


@contextmanager
def new_cable(database: Database) -> Iterator[Cable]:
    cable = Cable(database)
    try:
        yield cable
    finally:
        cable.pull()
