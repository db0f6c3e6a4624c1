"""A wire between the service and PostgreSQL on which the answer to a commit can be held back.

What is held back has happened: the transaction is committed and everybody sees it, but whoever asked for it does
not know yet. That is the moment in which a process dies that has done its work and has not said so.
"""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import unquote, urlsplit

HOST = "127.0.0.1"
# PostgreSQL's messages after a commit: the tag of a COMMIT, or of a statement by itself that wrote rows, and that it is
# idle, with no transaction open. It sends both at once, when all is done.
COMMITTED = re.compile(rb"(COMMIT|(INSERT 0|UPDATE|DELETE) [1-9]\d*)\0Z\0\0\0\x05I")
PATIENCE = 60.0


class Wire:
    """``url`` leads through it. ``hold()`` keeps the next answer back until ``release()``."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._folder = unquote(parts.hostname or "")
        assert self._folder.startswith("/"), "the servers of a test run listen on unix sockets"
        self._listener = socket.create_server((HOST, 0))
        user, port = parts.netloc.rpartition("@")[0], self._listener.getsockname()[1]
        self.url = parts._replace(netloc=f"{user}@{HOST}:{port}").geturl()
        self._holding = threading.Event()
        self._held = threading.Event()
        self._released = threading.Event()
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def hold(self) -> None:
        self._holding.set()

    def wait_until_held(self) -> None:
        """Returns once something has been committed whose answer is kept back."""
        assert self._held.wait(PATIENCE), "nothing was committed"

    def release(self) -> None:
        self._holding.clear()
        self._released.set()

    def close(self) -> None:
        self.release()
        # The first is the one that adds to the others.
        for each in self._sockets:
            _shut(each)
        for thread in self._threads:
            thread.join(PATIENCE)
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                self._sockets += client, server
                server.connect(f"{self._folder}/.s.PGSQL.5432")
                for each in ((client, server, False), (server, client, True)):
                    thread = threading.Thread(target=self._pass_on, args=each)
                    self._threads.append(thread)
                    thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket, watched: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if watched and COMMITTED.search(data) and self._holding.is_set():
                    self._held.set()
                    self._released.wait(PATIENCE)
                target.sendall(data)
        _shut(source)
        _shut(target)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def wire_to(url: str) -> Iterator[Wire]:
    wire = Wire(url)
    try:
        yield wire
    finally:
        wire.close()
