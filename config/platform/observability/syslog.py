"""Sends messages to a syslog server (RFC 5424) and reports whether it received them.

By TCP and TLS (RFC 6587, 5425) the server has received the messages once it has read the end of the connection and
closed its side. By UDP (RFC 5426) receipt is unknown; on a local socket they are in the queue of the other process.
"""

import socket
import ssl
from collections.abc import Iterable
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import NamedTuple

# Limit of each silence of the server.
TIMEOUT_SECONDS = 10.0
# Facility "log audit" at the level "informational".
PRIORITY = 13 * 8 + 6
LONGEST_ID = 32
PORTS = {"udp": 514, "tcp": 601, "tls": 6514}


class Receiver(NamedTuple):
    """The address of a syslog server: ``udp``, ``tcp`` or ``tls`` with host and port, or ``unix`` with a path."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""


def message(*, at: datetime, host: str, app: str, kind: str, text: str) -> bytes:
    """Returns one message. ``text`` is printable ASCII, so it needs no byte order mark and has one line."""
    when = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"<{PRIORITY}>1 {when} {host} {app} - {kind[:LONGEST_ID]} - {text}".encode("ascii")


def send(messages: Iterable[bytes], *, to: Receiver) -> None:
    """Sends all messages in order; raises ``OSError`` if the server may not have received every one."""
    if to.scheme in {"udp", "unix"}:
        _send_datagrams(messages, to)
    else:
        _send_stream(b"".join(b"%d %s" % (len(each), each) for each in messages), to)


def _send_datagrams(messages: Iterable[bytes], to: Receiver) -> None:
    with closing(_addressed(to)) as connected:
        for each in messages:
            connected.send(each)


def _addressed(to: Receiver) -> socket.socket:
    family: int = socket.AF_UNIX
    address: str | tuple[object, ...] = to.path
    if to.scheme == "udp":
        family, *_, address = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_DGRAM)[0]
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.settimeout(TIMEOUT_SECONDS)
    try:
        made.connect(address)
    except BaseException:
        made.close()
        raise
    return made


def _send_stream(octets: bytes, to: Receiver) -> None:
    with closing(_connected(to)) as stream:
        stream.sendall(octets)
        if isinstance(stream, ssl.SSLSocket):
            # A server that closes without close_notify has still read ours.
            with suppress(ssl.SSLEOFError):
                stream.unwrap()
            return
        stream.shutdown(socket.SHUT_WR)
        while stream.recv(4096):
            pass


def _connected(to: Receiver) -> socket.socket:
    plain = socket.create_connection((to.host, to.port), TIMEOUT_SECONDS)
    if to.scheme == "tcp":
        return plain
    try:
        return ssl.create_default_context().wrap_socket(plain, server_hostname=to.host)
    except BaseException:
        plain.close()
        raise
