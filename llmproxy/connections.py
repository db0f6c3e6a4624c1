"""The connections to providers that wait for their next request, and how one is asked.

urllib3 finds, makes and keeps them, certificates and all. What goes over them is ours: its own way of asking, and that
of `requests` over it, take several times as long as an exchange with a provider next door.
"""

import socket
import ssl
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from queue import Empty, SimpleQueue
from select import POLLIN
from typing import Any, NamedTuple

from gevent.monkey import get_original
from requests.adapters import DEFAULT_CA_BUNDLE_PATH
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import LocationValueError
from urllib3.util import parse_url

from llmproxy.framing import framing_of
from llmproxy.heads import Head, end_of, parsed, written
from llmproxy.sockets import Line, LineCutError, TLSSocket, current_line, work_for

# Connections kept for reuse, per provider. More may be open; beyond this they are not kept.
KEPT_CONNECTIONS = 4096
# Servers and address translators drop idle connections, some without saying so, and a request
# lost in that way cannot safely be repeated: a connection idle for longer is not used again.
# Several common servers close theirs after five seconds.
MAX_IDLE_SECONDS = 4.0
# Silence after which the operating system asks whether the other end is still there, and again each time.
PROBE_SECONDS = 30
# How soon a cut is noticed while a name is looked up.
LOOK_UP_SECONDS = 0.2
# How long the addresses of a name are used again. A kept connection trusts one for longer, and over TLS whoever answers
# there has to prove the name.
KNOWN_SECONDS = 5.0

# Not gevent's: this one does not wait, so there is nothing for its loop to do.
_poll = get_original("select", "poll")


def _keep_alive(sock: socket.socket) -> None:
    """An answer in one piece may take minutes without a byte: nobody on the way is to think it over."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_SECONDS)


class _Connection(HTTPConnection):
    """A way to a provider that reports its sockets to the line. Requests do not go through its own methods."""

    idle_since = 0.0

    @property
    def is_connected(self) -> bool:
        """Whether the pool may hand this connection out again."""
        is_usable = (
            not current_line().fresh and time.monotonic() - self.idle_since < MAX_IDLE_SECONDS
        )
        return is_usable and self.sock is not None and not _has_news(self.sock)

    def _new_conn(self) -> socket.socket:
        """Connect to the first address that answers, all of them within the connect timeout."""
        failure = OSError("no address")
        asked = self.host.strip("[]"), self.port
        for family, kind, proto, _, address in _addresses(*asked, line=current_line()):
            sock = socket.socket(family, kind, proto)
            try:
                current_line().hold(sock)
                sock.settimeout(current_line().patience())
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _keep_alive(sock)
                sock.connect(address)
            except OSError as error:
                sock.close()
                failure = error
            except LineCutError:
                sock.close()
                raise
            else:
                return sock
        # It may have others by now.
        _known.pop(asked, None)
        try:
            raise failure
        finally:
            # It holds on to where it was raised, and so to itself.
            del failure


class _TLSConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection

    def ask(self, line: Line, request: bytes) -> "Answer":
        """Send a request and wait for the head of its answer."""
        connection: Any = self._get_conn()
        try:
            if is_new := connection.sock is None:
                connection.connect()
            line.use(connection.sock, is_reused=not is_new)
            try:
                line.send(request)
            except (BrokenPipeError, ConnectionResetError) as error:
                head, ahead = _heard_early(line, error)
            else:
                head, ahead = _heard(line)
            return Answer(self, connection, head, ahead)
        except BaseException:
            connection.close()
            raise

    def keep(self, connection: Any) -> None:
        """For the next request, whosever it is."""
        connection.idle_since = time.monotonic()
        self._put_conn(connection)


class _TLSPool(_Pool, HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class Answer:
    """An answer of which nothing but the head has been read, and `ahead` what came with it."""

    def __init__(self, pool: _Pool, connection: _Connection, head: Head, ahead: bytes) -> None:
        self.head = head
        self.ahead = ahead
        self.framing = framing_of(head)
        self._pool = pool
        self._connection = connection

    def leave(self, line: Line) -> None:
        """Its body has been read to the end: the connection waits for its next use, where it may have one."""
        line.let_go()
        if self.head.stays:
            self._pool.keep(self._connection)
        else:
            self._connection.close()

    def drop(self) -> None:
        """Closes the connection."""
        self._connection.close()


class Request(NamedTuple):
    """What is asked; the length of the body, the host and the encoding that we can read are added to its headers."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        """Nothing of it: it holds the credential and what somebody has written."""
        return "<Request>"


class Connections(PoolManager):
    """The connections that exchanges run on: one such for each process, for nothing else.

    It knows no proxies, .netrc or other environment, and keeps no cookies. `ca_bundle` is a file of PEM certificates
    to trust instead of the public authorities.
    """

    def __init__(self, *, ca_bundle: str | None = None) -> None:
        # One for all: reading the authorities takes 10 ms and more.
        context = ssl.create_default_context(cafile=ca_bundle or DEFAULT_CA_BUNDLE_PATH)
        context.sslsocket_class = TLSSocket
        super().__init__(
            maxsize=KEPT_CONNECTIONS, block=False, ssl_context=context, cert_reqs="CERT_REQUIRED"
        )
        self.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
        # By address, of which a provider has one or two: taking one apart takes as long as asking.
        self._ways: dict[str, tuple[_Pool, str, str]] = {}

    def ask(self, line: Line, request: Request) -> Answer:
        """Send a request and wait for the head of its answer. Raises what goes wrong as it is."""
        work_for(line)
        pool, host, target = self._ways.get(request.url) or self._way(request.url)
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() != "accept-encoding"
        }
        headers["Accept-Encoding"] = "identity"
        head = written(request.method, target, host, headers, len(request.body))
        return pool.ask(line, head + request.body)

    def _way(self, url: str) -> tuple[_Pool, str, str]:
        parts = parse_url(url)
        if not parts.host or parts.scheme not in self.pool_classes_by_scheme:
            raise LocationValueError("not an address of a provider")
        pool = self.connection_from_host(parts.host, parts.port, parts.scheme)
        host = parts.host if parts.port is None else f"{parts.host}:{parts.port}"
        self._ways[url] = pool, host, parts.request_uri  # type: ignore[assignment]
        return self._ways[url]


def _heard(line: Line) -> tuple[Head, bytes]:
    """The head of an answer that is not a mere sign of life, and what has come behind it."""
    data = line.hear()
    while True:
        while (end := end_of(data)) is None:
            data += line.hear()
        head = parsed(data[:end])
        if head.status >= HTTPStatus.OK or head.status == HTTPStatus.SWITCHING_PROTOCOLS:
            return head, data[end:]
        data = data[end:]


def _heard_early(line: Line, error: OSError) -> tuple[Head, bytes]:
    """What was answered by who would not hear all of a request, one that is too large perhaps; else the error."""
    try:
        head, ahead = _heard(line)
    except (OSError, HTTPException):
        raise error from None
    return head._replace(stays=False), ahead


def _has_news(sock: socket.socket) -> bool:
    """Whether there is something to read: on an idle connection its end, or what belongs to no answer."""
    poll = _poll()
    poll.register(sock, POLLIN)
    return bool(poll.poll(0))


# The addresses that names had, and until when they are used again.
_known: dict[tuple[str, int], tuple[float, list[Any]]] = {}


def _addresses(host: str, port: int, *, line: Line) -> list[Any]:
    """The addresses of a name. Looking up knows no limit, so a thread does it, and is left behind after ours."""
    until, known = _known.get((host, port), (0.0, []))
    if time.monotonic() < until:
        return known
    found: SimpleQueue[list[Any] | Exception] = SimpleQueue()

    def look_up() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised where it is waited for
            found.put(error)

    threading.Thread(target=look_up, name="look-up", daemon=True).start()
    while True:
        try:
            answer = found.get(timeout=min(line.patience(), LOOK_UP_SECONDS))
        except Empty:
            line.check()
        else:
            break
    if isinstance(answer, Exception):
        raise answer
    _known[host, port] = time.monotonic() + KNOWN_SECONDS, answer
    return answer
