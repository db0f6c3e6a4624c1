"""Health checks: ``/livez`` reports that the process runs, ``/healthz`` that it can do its work.

The middleware answers both before host checks and https redirects, so that a probe may use plain HTTP and an address.
``/healthz`` answers 503 when the database is unavailable or the process stops, and 200 with the status ``degraded``
when only the cache is unavailable. If no cache is configured, its check is ``not_configured`` and the status ``ok``:
limits per process are a choice then.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from django.conf import settings
from django.core.cache import caches
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse

from config.platform.db.connections import database_now
from config.platform.edge.ratelimits.cache import CounterCache
from config.platform.problems.problem import MethodNotAllowed
from config.platform.problems.rendering import render

log = logging.getLogger(__name__)

DATABASE_SECONDS = 2.0

STOPPING = "stopping"
OK = "ok"
AWAY = "unavailable"
NOT_CONFIGURED = "not_configured"


class HealthMiddleware:
    """Answers GET and HEAD at the two addresses."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        self._answers = {"/livez": _alive, "/healthz": _healthy}

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        answer = self._answers.get(request.path_info)
        if answer is None:
            return self.get_response(request)
        if request.method not in {"GET", "HEAD"}:
            return render(request, MethodNotAllowed(headers={"Allow": "GET, HEAD"}))
        response = answer()
        response.headers["Cache-Control"] = "no-store"
        return response


class Probe:
    """Runs a check that may hang, in a separate thread and once at a time.

    A caller waits at most ``seconds``. Callers that arrive while a check hangs share that check, so that a frozen
    database costs one connection, however often an orchestrator probes it.
    """

    def __init__(self, look: Callable[[], None], *, seconds: float) -> None:
        self._look = look
        self._seconds = seconds
        self._lock = threading.Lock()
        self._running: Future[bool] | None = None

    def succeeds(self) -> bool:
        """Returns whether the running check, or a new one, succeeds in time."""
        with self._lock:
            running = self._running
            if running is None or running.done():
                running = Future()
                threading.Thread(target=self._run, args=[running], daemon=True).start()
                self._running = running
        try:
            return running.result(self._seconds)
        except TimeoutError:
            return False

    def _run(self, outcome: Future[bool]) -> None:
        succeeded = False
        try:
            self._look()
            succeeded = True
        except Exception:
            # Any error means that the database cannot answer.
            log.warning("health_check_failed", exc_info=True)
        finally:
            # Set even where the check is killed: otherwise no later one would begin.
            outcome.set_result(succeeded)


def _query_database() -> None:
    """Runs the shortest query on this thread's connection and returns it to the pool."""
    try:
        database_now()
    finally:
        connection.close()


def begin_stop() -> None:
    """Makes this process report that it stops."""
    _stops.set()


def _alive() -> HttpResponse:
    response = HttpResponse(status=204)
    del response.headers["Content-Type"]
    return response


def checks() -> dict[str, str]:
    """Checks the servers that this process needs."""
    counters = caches["default"]
    assert isinstance(counters, CounterCache)
    cache_answers = counters.answers()
    return {
        "database": OK if _database.succeeds() else AWAY,
        "cache": NOT_CONFIGURED if cache_answers is None else OK if cache_answers else AWAY,
    }


def _healthy() -> HttpResponse:
    found = checks()
    status = OK
    if _stops.is_set():
        status = STOPPING
    elif found["database"] == AWAY:
        status = AWAY
    elif found["cache"] == AWAY:
        status = "degraded"
    body = {"status": status, "version": settings.VERSION, "checks": found}
    response = JsonResponse(body, status=503 if status in {STOPPING, AWAY} else 200)
    response.headers["Content-Length"] = str(len(response.content))
    return response


_stops = threading.Event()
_database = Probe(_query_database, seconds=DATABASE_SECONDS)
