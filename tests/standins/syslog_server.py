"""A syslog server on real sockets: takes messages by UDP, TCP, TLS or a local socket, and may turn them away."""

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, BaseServer, TCPServer, UDPServer, UnixDatagramServer

from config.platform.observability.syslog import Receiver

# Closing a socket that lingers for no time resets its connection.
AT_ONCE = struct.pack("ii", 1, 0)


class SyslogServer:
    """Keeps the messages that it took. While it ``breaks``, it resets each stream after a few bytes."""

    def __init__(self, to: Receiver, context: ssl.SSLContext | None = None) -> None:
        self.messages: list[bytes] = []
        self.breaks = False
        self._context = context
        take = self._take_stream if to.scheme in {"tcp", "tls"} else self._take_datagram

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                take(self.request)

        self.listener: BaseServer
        if to.scheme == "unix":
            self.listener = UnixDatagramServer(to.path, Handler)
        else:
            kind = UDPServer if to.scheme == "udp" else TCPServer
            kind.allow_reuse_address = True
            self.listener = kind((to.host, to.port), Handler)
            to = to._replace(port=self.listener.server_address[1])
        self.receiver = to
        self.url = f"unix://{to.path}" if to.path else f"{to.scheme}://{to.host}:{to.port}"

    def _take_datagram(self, request: tuple[bytes, socket.socket]) -> None:
        self.messages.append(request[0])

    def _take_stream(self, peer: socket.socket) -> None:
        if self.breaks:
            peer.recv(10)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            peer.close()
            return
        # A client that trusts another authority breaks off the handshake.
        with suppress(ssl.SSLError):
            stream = self._context.wrap_socket(peer, server_side=True) if self._context else peer
            with stream, stream.makefile("rb") as octets:
                while length := b"".join(iter(lambda: octets.read(1).strip(), b"")):
                    self.messages.append(octets.read(int(length)))


@contextmanager
def listening(to: Receiver, context: ssl.SSLContext | None = None) -> Iterator[SyslogServer]:
    """A server at an address; port 0 takes a free one."""
    server = SyslogServer(to, context)
    thread = threading.Thread(target=server.listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.listener.shutdown()
        server.listener.server_close()
        thread.join()
        if to.path:
            Path(to.path).unlink()
