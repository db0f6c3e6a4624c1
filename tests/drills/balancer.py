"""A balancer as small as one can be: connections go in turn to the instances that say at ``/healthz`` that they serve.

It repeats nothing: what an instance has been sent, no other one is.
"""

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count

HOST = "127.0.0.1"
LOOKED_EVERY = 0.2
PATIENCE = 60.0


class Balancer:
    """``ports`` are the instances; what is added is asked for its health, and only then sent anything."""

    def __init__(self) -> None:
        self.ports: set[int] = set()
        self._serving: list[int] = []
        self._turn = count()
        self._over = threading.Event()
        self._listener = socket.create_server((HOST, 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}"

    def serves(self, port: int) -> bool:
        return port in self._serving

    def look(self) -> None:
        while not self._over.wait(LOOKED_EVERY):
            self._serving = [port for port in sorted(self.ports) if _is_well(port)]

    def listen(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def close(self) -> None:
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _pass_on(self, client: socket.socket) -> None:
        with closing(client), suppress(OSError), closing(self._connected()) as server:
            threads = [
                threading.Thread(target=_pump, args=pair, daemon=True)
                for pair in ((client, server), (server, client))
            ]
            for each in threads:
                each.start()
            for each in threads:
                each.join()

    def _connected(self) -> socket.socket:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if serving := self._serving:
                port = serving[next(self._turn) % len(serving)]
                # Nobody listens there any more: nothing was sent yet, so another one is asked.
                with suppress(ConnectionRefusedError):
                    return socket.create_connection((HOST, port), timeout=PATIENCE)
            time.sleep(0.01)
        raise ConnectionError("nobody serves")


@contextmanager
def balancing() -> Iterator[Balancer]:
    balancer = Balancer()
    for act in (balancer.look, balancer.listen):
        threading.Thread(target=act, daemon=True).start()
    try:
        yield balancer
    finally:
        balancer.close()


def _pump(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        source.settimeout(None)
        while data := source.recv(65536):
            to.sendall(data)
    # The end is passed on too, or the other side's.
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)


def _is_well(port: int) -> bool:
    with closing(http.client.HTTPConnection(HOST, port, timeout=5)) as asked:
        try:
            asked.request("GET", "/healthz")
            return asked.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
