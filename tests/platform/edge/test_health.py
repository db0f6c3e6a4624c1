import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import connection
from django.db.utils import ConnectionHandler
from django.test import Client
from pytest_django import Settings

from config.platform.db import connections
from config.platform.edge import health
from config.platform.edge.health import Probe
from config.platform.edge.ratelimits import servers
from tests.platform.edge.ratelimits.own_redis import own_redis
from tests.tools.redis import available
from tests.waiting import eventually

# The bound of a wait for a condition.
SECONDS = 60.0
PROCESS_COUNTERS = {
    "default": {"BACKEND": "config.platform.edge.ratelimits.cache.CounterCache", "LOCATION": ""}
}


@contextmanager
def database_at(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The service's database connections go to a loopback port."""
    elsewhere = ConnectionHandler(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "shell",
                "HOST": "127.0.0.1",
                "PORT": str(port),
                "OPTIONS": {"connect_timeout": int(SECONDS)},
            }
        }
    )
    with monkeypatch.context() as patch:
        # Looked up anew by each thread, as Django's own name for it is.
        patch.setattr(health, "connection", _Elsewhere(elsewhere))
        patch.setattr(connections, "connections", elsewhere)
        patch.setattr(health, "_database", Probe(health._query_database, seconds=0.5))
        yield
        eventually(nobody_looks)


def nobody_looks() -> bool:
    return not [each for each in threading.enumerate() if "_run" in each.name]


class _Elsewhere:
    def __init__(self, handler: ConnectionHandler) -> None:
        self._handler = handler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler["default"], name)


@pytest.mark.django_db
def test_a_healthy_service_answers_ok_and_its_version(client: Client) -> None:
    response = client.get("/healthz")
    assert response.status_code == 200
    cache = "ok" if configured.CACHE_URL else "not_configured"
    assert response.json() == {
        "status": "ok",
        "version": configured.VERSION,
        "checks": {"database": "ok", "cache": cache},
    }
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Request-ID"]


@pytest.mark.django_db
def test_a_probe_may_use_plain_http_and_any_host(client: Client, settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/healthz", HTTP_HOST="10.1.2.3:8000").status_code == 200
    assert client.get("/livez", HTTP_HOST="no such host!").status_code == 204


@pytest.mark.django_db
def test_the_check_returns_its_database_connection(client: Client) -> None:
    for _ in range(40):
        assert client.get("/healthz").status_code == 200

    def lent() -> int:
        stats = connection.pool.get_stats()
        return int(stats["pool_size"] - stats["pool_available"])

    # One is this test's own.
    eventually(lambda: lent() == 1)
    assert connection.pool.get_stats().get("requests_waiting", 0) == 0


def test_livez_touches_nothing(client: Client) -> None:
    # The test has no access to the database, so asking it would fail.
    response = client.get("/livez")
    assert response.status_code == 204
    assert response.content == b""
    assert response.headers["Cache-Control"] == "no-store"
    assert client.head("/livez").status_code == 204


@pytest.mark.django_db
def test_head_is_answered_like_get(client: Client) -> None:
    assert client.head("/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/livez"])
@pytest.mark.parametrize("method", ["post", "put", "delete", "options"])
def test_other_methods_are_refused_by_a_problem(client: Client, path: str, method: str) -> None:
    response = getattr(client, method)(path)
    assert response.status_code == 405
    assert response.headers["Allow"] == "GET, HEAD"
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json()["code"] == "method_not_allowed"
    assert response.json()["request_id"] == response.headers["X-Request-ID"]


@pytest.mark.django_db
def test_a_database_that_refuses_connections_means_503(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CACHES = PROCESS_COUNTERS
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with database_at(taken.getsockname()[1], monkeypatch):
            response = client.get("/healthz")
    assert response.status_code == 503
    assert response.json() == {
        "status": "unavailable",
        "version": configured.VERSION,
        "checks": {"database": "unavailable", "cache": "not_configured"},
    }


@pytest.mark.django_db
def test_probes_share_one_short_wait_for_a_frozen_database(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CACHES = PROCESS_COUNTERS
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(SECONDS)
        with database_at(silent.getsockname()[1], monkeypatch):
            with ThreadPoolExecutor(5) as pool:
                codes = list(pool.map(lambda _: Client().get("/healthz").status_code, range(10)))
            assert codes == [503] * 10
            asked, _ = silent.accept()
            # Ten asked the service, and the service asked its database once.
            silent.settimeout(0)
            with pytest.raises(BlockingIOError):
                silent.accept()
            asked.close()


@pytest.mark.django_db
@pytest.mark.skipif(not available(), reason="no Redis for this Python")
def test_the_service_without_its_cache_is_degraded_and_works(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(servers.TIMEOUTS, "socket_timeout", 1.0)
    with own_redis() as server:
        location = {
            "BACKEND": "config.platform.edge.ratelimits.cache.CounterCache",
            "LOCATION": server.url,
        }
        settings.CACHES = {"default": location}
        assert client.get("/healthz").json()["checks"]["cache"] == "ok"
        with server.frozen():
            response = client.get("/healthz")
        server.kill()
        assert client.get("/healthz").json() == response.json()
    assert response.status_code == 200
    assert response.json() == {
        "status": "degraded",
        "version": configured.VERSION,
        "checks": {"database": "ok", "cache": "unavailable"},
    }


@pytest.mark.django_db
def test_the_service_without_a_configured_cache_is_ok(client: Client, settings: Settings) -> None:
    settings.CACHES = PROCESS_COUNTERS
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/healthz").json()["checks"]["cache"] == "not_configured"


def test_a_hanging_check_runs_once_and_recovers() -> None:
    go_on, looks = threading.Event(), []

    def look() -> None:
        looks.append(1)
        assert go_on.wait(SECONDS)

    probe = Probe(look, seconds=0.05)
    assert not probe.succeeds()
    assert not probe.succeeds()
    assert len(looks) == 1
    go_on.set()
    eventually(probe.succeeds)
    assert len(looks) >= 1


def test_a_failed_check_is_reported_without_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    def look() -> None:
        raise OSError("secret")

    assert not Probe(look, seconds=SECONDS).succeeds()
    assert [record.getMessage() for record in caplog.records] == ["health_check_failed"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_check_that_is_killed_does_not_keep_the_next_from_beginning() -> None:
    looked: list[bool] = []

    def look() -> None:
        looked.append(True)
        if len(looked) == 1:
            raise SystemExit

    probe = Probe(look, seconds=SECONDS)
    assert not probe.succeeds()
    assert probe.succeeds()
    # Its thread reports the exception to the test that runs then.
    eventually(nobody_looks)
