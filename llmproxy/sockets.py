"""Connections to a provider that another thread can cut, whatever is being waited for.

Closing a response does not wake a thread that is blocked on its socket, and before the headers
there is no response to close. So each exchange has a `Line`, which is told of its socket before the
socket is first waited on. urllib3 makes the socket in the thread that uses it, which is how the
classes here find the line they work for.
"""

import contextlib
import socket
import ssl
import threading
import time
from typing import Any

import requests
from requests.adapters import DEFAULT_CA_BUNDLE_PATH, HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

# Connections kept for reuse, per provider. More may be open; beyond this they are not kept.
KEPT_CONNECTIONS = 4096
# Servers and address translators drop idle connections, some without saying so, and a request
# lost in that way cannot safely be repeated: a connection idle for longer is not used again.
# Several common servers close theirs after five seconds.
MAX_IDLE_SECONDS = 4.0
# Silence after which the operating system asks whether the other end is still there, and again each time.
PROBE_SECONDS = 30


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


class _Current(threading.local):
    line: Line


_current = _Current()


def work_for(line: Line) -> None:
    """Say which line the connections used by this thread belong to from now on."""
    _current.line = line


class _Socket(socket.socket):
    """A TCP socket whose every wait for bytes ends with its line's patience."""

    def recv_into(self, *args: Any) -> int:
        line = _current.line
        self.settimeout(line.patience())
        count = super().recv_into(*args)
        line.heard = line.heard or count > 0
        return count


class _TLSSocket(ssl.SSLSocket):
    """The same over TLS; it can be cut during the handshake already."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is in ssl
        _current.line.hold(self)
        self.settimeout(_current.line.patience())
        super().do_handshake()

    def recv_into(self, *args: Any) -> int:
        line = _current.line
        self.settimeout(line.patience())
        count = super().recv_into(*args)
        line.heard = line.heard or count > 0
        return count


def _keep_alive(sock: socket.socket) -> None:
    """An answer in one piece may take minutes without a byte: nobody on the way is to think it over."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_SECONDS)


class _Connection(HTTPConnection):
    """Reports its sockets to the line, and the moment from which the request is on its way."""

    idle_since = 0.0

    @property
    def is_connected(self) -> bool:
        """Whether the pool may hand this connection out again."""
        is_usable = (
            not _current.line.fresh and time.monotonic() - self.idle_since < MAX_IDLE_SECONDS
        )
        return is_usable and super().is_connected

    def _new_conn(self) -> socket.socket:
        """Connect to the first address that answers, all of them within the connect timeout."""
        failure = OSError("no address")
        for family, kind, proto, _, address in socket.getaddrinfo(
            self.host.strip("[]"), self.port, type=socket.SOCK_STREAM
        ):
            sock = _Socket(family, kind, proto)
            try:
                _current.line.hold(sock)
                sock.settimeout(_current.line.patience())
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
        raise failure

    def request(self, *args: Any, **options: Any) -> None:
        """Send a request; where that fails, the provider cannot have all of it."""
        line = _current.line
        is_reused = self.sock is not None
        if not is_reused:
            self.connect()
        line.use(self.sock, is_reused=is_reused)
        self.timeout = line.patience()
        try:
            super().request(*args, **options)
        except BaseException:
            line.sent = False
            raise


class _TLSConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection

    def _put_conn(self, conn: Any) -> None:
        _current.line.let_go()
        if conn is not None:
            conn.idle_since = time.monotonic()
        super()._put_conn(conn)


class _TLSPool(_Pool, HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class _Adapter(HTTPAdapter):
    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(pool_maxsize=KEPT_CONNECTIONS, max_retries=0, pool_block=False)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options, ssl_context=self._context)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Verify always, by the one context: reading the CA bundle takes 10 ms and more."""
        conn.cert_reqs = "CERT_REQUIRED"


def new_session(*, ca_bundle: str | None = None) -> requests.Session:
    """Make the session that exchanges run on: one for each process, for nothing else.

    It knows no proxies, .netrc or other environment. `ca_bundle` is a file of PEM certificates to
    trust instead of the public authorities.
    """
    context = ssl.create_default_context(cafile=ca_bundle or DEFAULT_CA_BUNDLE_PATH)
    context.sslsocket_class = _TLSSocket
    session = requests.Session()
    session.trust_env = False
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(context))
    return session
