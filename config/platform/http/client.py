"""HTTP connections to other services: verified, pooled, and limited in time from name resolution on.

Subclasses of the connections of ``requests`` and urllib3 record the progress of a request, which decides whether a
retry is safe, and refuse answers whose heads leave the end of the body ambiguous.
"""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

from requests import PreparedRequest, Request, Response
from requests.adapters import DEFAULT_CA_BUNDLE_PATH, HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from config.platform.concurrency.greenlets import within

# Connections that a client of the process pools per server. More may be open; those are closed after use.
KEPT_CONNECTIONS = 4096
# A connection that was idle for longer is not reused: servers and NAT devices drop idle connections, some silently, and
# a request lost that way cannot safely be repeated. Several common servers close theirs after 5 s.
MAX_IDLE_SECONDS = 4.0
# Seconds of silence before the first TCP keep-alive probe, and between probes. A one-shot answer may take minutes
# without a byte.
PROBE_SECONDS = 30

_KEEP_ALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)] + [
    (socket.IPPROTO_TCP, getattr(socket, name), PROBE_SECONDS)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL")
    if hasattr(socket, name)
]
_LENGTH = re.compile(r"[0-9]{1,15}")


class UnclearHead(HTTPException):
    """The head of an answer is malformed or ambiguous."""


class Abandoned(HTTPException):
    """The caller disconnected before the request was sent."""


class Limits(NamedTuple):
    """The limits of an exchange: seconds, times on the monotonic clock, and bytes.

    `connect_timeout` covers name resolution, connection and TLS together, `address_timeout` one address of the name;
    `first_byte_timeout` each silence from there to the first byte of the body, `read_timeout` each silence after it;
    `deadline` everything; `max_bytes` the body of the answer. No new attempt begins after `retry_until`, and fewer are
    made where the call `has_next`, another route. `decodes`: the consumer decodes a compressed body.
    """

    connect_timeout: float
    first_byte_timeout: float
    read_timeout: float
    deadline: float
    max_bytes: int
    retry_until: float = 0.0
    has_next: bool = False
    address_timeout: float | None = None
    decodes: bool = False

    def remaining(self) -> float:
        return self.deadline - time.monotonic()


class Attempt:
    """The progress of one attempt at a request.

    ``connected``: name resolution, connection and TLS are done. ``sent``: the server may have received the whole
    request. ``answered``: a byte of the answer has arrived; ``has_head``: its head has. ``is_first``: there was no
    attempt before. ``is_cut``: nothing may be sent any more.
    """

    def __init__(self, limits: Limits, *, is_first: bool) -> None:
        self.limits, self.is_first = limits, is_first
        self.connected = self.send_failed = self.answered = self.has_head = self.is_cut = False
        self.is_reused = True
        self.sent_at = 0.0
        self.connection: _Connection | None = None
        self.sock: socket.socket | None = None
        self.answer: HTTPResponse | None = None

    @property
    def sent(self) -> bool:
        return self.connected and not self.send_failed

    def begin_to_send(self) -> None:
        # The order matters, and a thread that cuts reads ``sent`` last: the two may interleave.
        self.connected = True
        if self.is_cut:
            raise Abandoned


# Each sends a request by calling its second argument; composition registers at most one.
around: list[Callable[[PreparedRequest, Callable[[], Response]], Response]] = []
# The current attempt of the calling thread or greenlet.
_current = threading.local()


class _Answer(HTTPResponse):
    def begin(self) -> None:
        """Reads the head and skips every interim answer; the superclass skips only one kind."""
        _current.attempt.answer = self
        _current.attempt.answered = bool(self.fp.peek(1))
        super().begin()
        while 100 < self.status < 200 and self.status != 101:
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()
        _check(self.headers)


class _Connection(HTTPConnection):
    response_class = _Answer
    idle_since = 0.0

    @property
    def is_connected(self) -> bool:
        """Returns whether the pool may reuse this connection; only a first attempt does."""
        is_fresh = time.monotonic() - self.idle_since < MAX_IDLE_SECONDS
        attempt: Attempt = _current.attempt
        return attempt.is_first and is_fresh and super().is_connected

    def connect(self) -> None:
        """Connects within the connect timeout: name resolution, all addresses and TLS together."""
        attempt: Attempt = _current.attempt
        limits = attempt.limits
        attempt.is_reused = False
        sending, self.timeout = self.timeout, limits.address_timeout or limits.connect_timeout
        within(limits.connect_timeout, super().connect)
        self.timeout = sending
        self.sock.settimeout(sending)
        attempt.begin_to_send()

    def request(self, *args: Any, **kwargs: Any) -> None:
        attempt: Attempt = _current.attempt
        attempt.connection, attempt.connected = self, False
        attempt.sent_at = time.monotonic()
        try:
            if self.sock is not None:
                attempt.begin_to_send()
            super().request(*args, **kwargs)
        except BaseException:
            attempt.send_failed = True
            raise
        finally:
            attempt.sock = self.sock


class _TLSConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class Client(HTTPAdapter):
    """The connections to other services, for one process or one exchange.

    Unlike a session it follows no redirects, keeps no cookies and ignores proxies, .netrc and the environment.
    ``ca_bundle`` is a file or folder of PEM certificates to trust instead of the public authorities; ``kept`` is the
    number of connections to pool per server.
    """

    def __init__(self, *, ca_bundle: str | None = None, kept: int = KEPT_CONNECTIONS) -> None:
        self._context = _trusting(ca_bundle or DEFAULT_CA_BUNDLE_PATH)
        # Pools by URL, of which a provider has one or two: urllib3's look-up takes 40 µs.
        self._pools: dict[str | None, Any] = {}
        super().__init__(pool_maxsize=kept, max_retries=0)

    def ask(self, request: PreparedRequest, attempt: Attempt) -> Response:
        """Sends a request and returns its answer with the body unread."""
        _current.attempt = attempt
        send = partial(self.send, request, stream=True, timeout=attempt.limits.first_byte_timeout)
        return around[0](request, send) if around else send()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        options = [*HTTPConnection.default_socket_options, *_KEEP_ALIVE]
        super().init_poolmanager(*args, ssl_context=self._context, socket_options=options, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}

    def get_connection_with_tls_context(
        self, request: PreparedRequest, *args: Any, **kwargs: Any
    ) -> Any:
        if request.url not in self._pools:
            pool = super().get_connection_with_tls_context(request, *args, **kwargs)
            self._pools[request.url] = pool
        return self._pools[request.url]

    def build_response(self, req: PreparedRequest, resp: Any) -> Response:
        """Builds the response without cookies and encoding, which take 50 µs and are not used."""
        response = Response()
        response.status_code, response.raw = resp.status, resp
        response.headers = resp.headers
        return response

    def cert_verify(self, *args: Any) -> None:
        """Does nothing: the shared context verifies, and the superclass would load all authorities per connection."""


def _trusting(bundle: str) -> ssl.SSLContext:
    """Returns the TLS settings that trust the certificates of a file, as it is now, or of a folder."""
    if Path(bundle).is_dir():
        return ssl.create_default_context(capath=bundle)
    found = Path(bundle).stat()
    return _trusting_file(bundle, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


# Reading the public authorities takes 20 ms, and each `exchange_once` needs them.
@lru_cache(maxsize=4)
def _trusting_file(bundle: str, *version: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=bundle)


def prepared(method: str, url: str, headers: Mapping[str, str], body: bytes) -> PreparedRequest:
    """Prepares a request that accepts no encoding of the answer."""
    request = _without_body(method, url, tuple(headers.items())).copy()
    request.prepare_body(body, None)
    return request


# All calls to a provider share one or two URLs and sets of headers, and preparing them takes 40 µs.
@lru_cache(maxsize=64)
def _without_body(method: str, url: str, headers: tuple[tuple[str, str], ...]) -> PreparedRequest:
    kept = {name: value for name, value in headers if name.lower() != "accept-encoding"}
    return Request(method, url, {**kept, "Accept-Encoding": "identity"}).prepare()


def _check(headers: HTTPMessage) -> None:
    """Raises ``UnclearHead`` for an ambiguous head: a bad line, transfer coding or length."""
    codings = _values(headers, "Transfer-Encoding") - {"", "identity"}
    lengths = _values(headers, "Content-Length")
    has_length = len(lengths) == 1 and all(map(_LENGTH.fullmatch, lengths))
    is_clear = codings == {"chunked"} or (not codings and (has_length or not lengths))
    if headers.defects or not is_clear:
        raise UnclearHead


def _values(headers: HTTPMessage, name: str) -> set[str]:
    lines = headers.get_all(name, [])
    return {each.strip().lower() for line in lines for each in line.split(",")}
