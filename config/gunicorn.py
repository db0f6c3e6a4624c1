"""gunicorn's configuration: settings, server hooks and the worker class.

``gunicorn -c python:config.gunicorn config.wsgi:application``

The application is loaded once, before the workers are forked: an error in it stops the start instead of restarting
workers for ever, a dead worker is replaced in milliseconds, and all workers share one copy of the code in memory. The
pool of database connections, the Redis client and the argon2 thread must not be shared, so they are made on first use,
after the fork. In return, new code needs a restart.
"""

from gevent import monkey

# Before any other import: a module imported earlier would block every client of its process.
monkey.patch_all()

import gc  # noqa: E402
import logging  # noqa: E402
import math  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import time  # noqa: E402
from contextlib import suppress  # noqa: E402
from functools import partial  # noqa: E402
from mmap import mmap  # noqa: E402
from pathlib import Path  # noqa: E402
from signal import SIGKILL  # noqa: E402
from socket import SHUT_RD, socket  # noqa: E402
from typing import Any  # noqa: E402
from urllib.parse import unquote  # noqa: E402

from django.conf import settings  # noqa: E402
from gevent.pool import Pool  # noqa: E402
from gevent.server import StreamServer  # noqa: E402
from gunicorn.glogging import Logger  # noqa: E402
from gunicorn.http.errors import InvalidHeader  # noqa: E402
from gunicorn.workers.ggevent import GeventWorker  # noqa: E402

from config.platform.db.connections import close_pool  # noqa: E402
from config.platform.db.encoding import refuse_other_encodings  # noqa: E402
from config.platform.db.sessions import limit_statements  # noqa: E402
from config.platform.edge import health, server_refusals  # noqa: E402
from config.platform.edge.body_limits import cut, is_too_large  # noqa: E402
from config.platform.edge.client_connection import ClientConnection  # noqa: E402
from config.platform.observability import metrics_serving  # noqa: E402
from config.platform.runtime import serving  # noqa: E402

log = logging.getLogger(__name__)

# A client that neither reads nor sends for this long in the middle of a request counts as disconnected.
STALLED_SECONDS = 90
# Connections that a process accepts per iteration of its event loop.
MOST_ACCEPTED = 8
# Time for a refused client to read its answer.
REFUSAL_SECONDS = 5.0
# The last part of a stopping worker's grace period, for its calls to settle: a heartbeat, and the longest lock wait.
ENDING_SECONDS = 6.0
# Database limits of one web request; commands and the job worker have none. Where a server hangs, a failed transaction
# waits 2 s more and then 5 for another connection: 14 s in all.
STATEMENT_LIMITS = (
    "-c statement_timeout=7s -c lock_timeout=4s -c idle_in_transaction_session_timeout=30s"
)


class QuietLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's logger without its access line; config.platform.edge.request_log writes the one line of a request."""

    def access(self, *_: Any) -> None:
        """Writes nothing."""

    def error(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        """Logs which worker was killed; the log format drops gunicorn's assembled text."""
        if args[1:] == (SIGKILL.name,) and isinstance(args[0], int):
            log.error("worker_killed", extra={"pid": args[0], "signal": SIGKILL.name})
        else:
            super().error(msg, *args, **kwargs)


class Worker(GeventWorker):  # type: ignore[misc]  # gunicorn has no types
    """A gevent worker that drops stalled clients and closes idle connections when it stops."""

    alive: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._idle: set[socket] = set()
        self._stopping_since: float | None = None
        self._grace = self.cfg.graceful_timeout - ENDING_SECONDS
        self._drain = min(settings.DRAIN_SECONDS, self._grace)
        self._reloads = _reloads[0]

    def handle_exit(self, sig: Any, frame: Any) -> None:
        """Begins to stop: first ``/healthz`` answers 503, so that balancers send new requests elsewhere."""
        self._stopping_since = self._stopping_since or time.monotonic()
        is_replaced = _reloads[0] != self._reloads
        if is_replaced or self._drain <= 0:
            super().handle_exit(sig, frame)
        else:
            health.begin_stop()

    def server_class(
        self, listener: socket, *, spawn: Pool, ssl_context: Any = None, **_: Any
    ) -> StreamServer:
        """Returns the server of a listener, which accepts several connections per iteration of the event loop.

        gunicorn's own accepts one if there are several workers, and with hundreds of streams an iteration is long.
        """
        tls = {} if ssl_context is None else {"ssl_context": ssl_context}
        server = StreamServer(listener, handle=partial(self.handle, listener), spawn=spawn, **tls)
        server.max_accept = MOST_ACCEPTED
        return server

    def handle(self, listener: socket, client: socket, addr: Any) -> None:
        client = ClientConnection(client.family, client.type, client.proto, client.detach())
        self._idle.add(client)
        try:
            super().handle(listener, client, addr)
        finally:
            self._idle.discard(client)

    def handle_request(
        self, listener_name: Any, req: Any, sock: ClientConnection, addr: Any
    ) -> None:
        self._idle.discard(sock)
        if req.version >= (1, 1) and not any(name == "HOST" for name, _ in req.headers):
            # RFC 9112, 3.2; the parser accepts requests without a host.
            raise InvalidHeader("HTTP/1.1 requests need a Host header.", req)
        length = next((value for name, value in req.headers if name == "CONTENT-LENGTH"), "0")
        if length.isdecimal() and is_too_large(length, unquote(req.path)):
            # A client that expects a 100 is refused, and a body that it sends anyway is not read.
            sock.refuse_body()
            if any(name == "EXPECT" for name, _ in req.headers):
                req.force_close()
        sock.settimeout(STALLED_SECONDS)
        sock.hold()
        try:
            super().handle_request(listener_name, req, sock, addr)
        except TimeoutError:
            # Makes gunicorn close the connection without an answer.
            raise StopIteration from None
        finally:
            sock.flush()
        if sock in cut:
            raise StopIteration
        sock.begin()
        self._idle.add(sock)

    def handle_error(self, req: Any, client: ClientConnection, addr: Any, exc: Any) -> None:
        """Renders a refusal as a problem, after gunicorn has logged it and chosen its status."""
        unsent = server_refusals.Unsent()
        super().handle_error(req, unsent, addr, exc)
        if unsent.status is None:
            return
        with suppress(OSError):
            client.settimeout(REFUSAL_SECONDS)
            client.sendall(server_refusals.refusal(unsent.status, head=client.head))

    def notify(self) -> None:
        """Sends the heartbeat, once a second."""
        super().notify()
        if self._stopping_since is None and self.alive:
            return
        now = time.monotonic()
        self._stopping_since = self._stopping_since or now
        stopping_for = now - self._stopping_since
        drains = self.alive and stopping_for < self._drain
        if not drains:
            self.alive = False
            # An idle connection must not delay the stop. A request that was already sent is still answered.
            for client in tuple(self._idle):
                with suppress(OSError):
                    client.shutdown(SHUT_RD)
        if stopping_for >= self._grace:
            # The master kills at the end of the grace period, and a killed call is charged its whole reservation.
            serving.run(serving.grace_over)


def _allow_many_connections() -> None:
    """Raises the limit of open files as far as allowed; the usual 1,024 suffice for 500 streams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def on_starting(server: Any) -> None:
    """Refuses a database that cannot store all of Unicode."""
    refuse_other_encodings()


def when_ready(server: Any) -> None:
    """Logs the address, which the log format removes from gunicorn's own line."""
    # Loaded modules are never garbage; a collection would also copy their memory pages in each worker.
    gc.freeze()
    # A collection pauses all streams of its process, for 4 to 40 ms with thousands of them, so it must be rare.
    gc.set_threshold(50_000)
    for listener in server.LISTENERS:
        address, port = listener.sock.getsockname()[:2]
        log.info("serving", extra={"address": address, "port": port, "count": server.num_workers})
    if settings.METRICS_PORT is not None:
        metrics_serving.serve(settings.HOST, settings.METRICS_PORT)


def on_reload(server: Any) -> None:
    """Distinguishes replaced workers from those of a stopping service."""
    _reloads[0] = (_reloads[0] + 1) % 256


def post_worker_init(worker: Any) -> None:
    """Starts background work: the watch over the job worker and, in the first process, one-time work."""
    serving.run(serving.started)
    if worker.age == 1:
        serving.run(serving.first_started)


def worker_exit(server: Any, worker: Any) -> None:
    """Retries pending settlements a last time, and closes the pool."""
    serving.run(serving.exits)
    # At its exit the interpreter would wait five seconds for threads of the pool that can no longer run.
    close_pool()


# The number of reloads, shared by all processes.
_reloads = mmap(-1, 1)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
_allow_many_connections()
limit_statements(STATEMENT_LIMITS)
if settings.METRICS_PORT is not None:
    metrics_serving.begin(settings.METRICS_PORT)

# --- gunicorn's settings ----------------------------------------------------------------------------

bind = (
    f"[{settings.HOST}]:{settings.PORT}"
    if ":" in settings.HOST
    else f"{settings.HOST}:{settings.PORT}"
)
workers = settings.WEB_WORKERS or len(os.sched_getaffinity(0))
worker_class = Worker
worker_connections = 4096
preload_app = True

# Heartbeats come every second; a worker that misses this many is stuck.
timeout = 60
# A stopping worker lets its streams finish, and none lasts longer than this. If the platform grants less, streams are
# cut, and the job worker settles their reservations.
graceful_timeout = int(settings.LLM_MAX_SECONDS) + 30 + math.ceil(settings.DRAIN_SECONDS)
# Longer than the minute that proxies keep idle connections, so that none sends a request into a closing one.
# It also bounds how long a client may take to send its headers.
keepalive = 75
# There is no known leak, and a restart may cut a worker's streams.
max_requests = 0

# Explicit, because gunicorn would silently choose another installed parser, whose strictness is untested.
http_parser = "python"
limit_request_line = 8190
limit_request_fields = 100
limit_request_field_size = 8190

# Only config/platform/request/client_address.py decides about the client's address and https.
forwarded_allow_ips = ""
forwarder_headers = ""
secure_scheme_headers: dict[str, str] = {}
proxy_protocol = False

# Signals are the only control.
control_socket_disable = True
# Heartbeats in memory: on a slow disk they would block the worker.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # nosec B108 # noqa: S108 - only an inode of it is used

# config.platform.edge.request_log writes the one line of a request.
accesslog = None
logger_class = QuietLogger
errorlog = "-"
_logging: dict[str, Any] = settings.LOGGING
logconfig_dict = {
    **_logging,
    "loggers": {
        **_logging["loggers"],
        "gunicorn.error": {"level": "INFO", "handlers": [], "propagate": True},
        # It warns of every HEAD request, whose body gunicorn drops.
        "gunicorn.http.wsgi": {"level": "ERROR"},
        "gunicorn.access": {"level": "CRITICAL", "handlers": [], "propagate": False},
    },
}
