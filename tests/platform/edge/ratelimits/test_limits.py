import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from types import SimpleNamespace

import pytest
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django_ratelimit import core
from pytest_django import Settings

from config.platform.edge.outermost import EdgeMiddleware
from config.platform.edge.ratelimits.limits import AddressLimitMiddleware, RateLimited, count
from tests.platform.edge.ratelimits.own_redis import OwnRedis, own_redis, round_trips
from tests.tools.redis import available

needs_redis = pytest.mark.skipif(not available(), reason="no Redis for this Python")
HERE, ELSEWHERE = "203.0.113.7", "203.0.113.8"


@pytest.fixture(autouse=True)
def _counters(settings: Settings) -> Iterator[None]:
    """Counts in this process, with nothing counted; limits by the day, whose windows do not end in mid-test."""
    settings.CACHES = {
        "default": {"BACKEND": "config.platform.edge.ratelimits.cache.CounterCache", "LOCATION": ""}
    }
    settings.RATE_LIMITS = {
        "auth.ip": "2/d",
        "status.ip": "3/d",
        "publish.ip": "1/d",
        "auth.account": "2/d",
        "auth.all": "3/d",
        "llm.user": "2/d",
    }
    settings.RATE_LIMIT_NETWORKS = {}
    settings.TRUSTED_PROXIES = []
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def server(settings: Settings) -> Iterator[OwnRedis]:
    with own_redis() as server:
        settings.CACHES = {
            "default": {
                "BACKEND": "config.platform.edge.ratelimits.cache.CounterCache",
                "LOCATION": server.url,
            }
        }
        yield server


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


def answered(
    path: str,
    address: str = HERE,
    method: str = "GET",
    view: Callable[[HttpRequest], HttpResponse] = lambda request: HttpResponse(),
) -> HttpResponse:
    request = RequestFactory().generic(method, path, REMOTE_ADDR=address)
    response = EdgeMiddleware(AddressLimitMiddleware(view))(request)
    assert isinstance(response, HttpResponse)
    return response


def statuses(times: int, path: str, address: str = HERE, method: str = "GET") -> list[int]:
    return [answered(path, address, method).status_code for _ in range(times)]


def test_a_limit_that_is_not_overridden_is_the_specified_one(
    settings: Settings, now: datetime
) -> None:
    settings.RATE_LIMITS = {"auth.ip": "2/d"}
    refused_at = 0
    # Two windows may share these, so one more than twice thirty is surely too many.
    for number in range(1, 62):
        try:
            count("llm.user", key="a", now=now)
        except RateLimited:
            refused_at = number
            break
    assert refused_at >= 31


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/auth/login", 2),
        ("GET", "/v1/auth/me", 2),
        ("DELETE", "/v1/auth/nothing/here", 2),
        ("POST", "/admin/login/", 2),
        ("POST", "/account/password/token/", 2),
        ("GET", "/v1/license/status", 3),
        ("POST", "/v1/internal/manifest/publish", 1),
    ],
)
def test_a_path_is_limited_per_address(method: str, path: str, allowed: int) -> None:
    assert statuses(allowed + 1, path, method=method) == [200] * allowed + [429]
    assert answered(path, ELSEWHERE, method).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/login/"),
        ("POST", "/admin/accounts/user/"),
        ("GET", "/account/password/token/"),
        ("GET", "/v1/usage/me"),
        ("POST", "/v1/llm/complete"),
        ("GET", "/"),
    ],
)
def test_other_paths_are_not_limited_per_address(method: str, path: str) -> None:
    assert set(statuses(5, path, method=method)) == {200}


def test_everything_under_auth_spends_one_limit_and_status_another() -> None:
    assert statuses(1, "/v1/auth/login", method="POST") == [200]
    assert statuses(1, "/admin/login/", method="POST") == [200]
    assert statuses(1, "/v1/auth/me") == [429]
    assert statuses(1, "/v1/license/status") == [200]


def test_no_view_runs_for_a_refused_request() -> None:
    ran: list[str] = []

    def view(request: HttpRequest) -> HttpResponse:
        ran.append(request.path)
        return HttpResponse()

    for _ in range(4):
        answered("/v1/auth/login", view=view)
    assert len(ran) == 2


def test_the_refusal_is_a_problem_with_its_end() -> None:
    statuses(2, "/v1/auth/login")
    before = datetime.now(UTC)
    response = answered("/v1/auth/login")
    after = datetime.now(UTC)
    assert response.headers["Content-Type"] == "application/problem+json"
    body = json.loads(response.content)
    assert (body["status"], body["code"]) == (429, "rate_limited")
    until = datetime.fromisoformat(body["retry_after_iso"])
    assert body["retry_after_iso"].endswith("Z")
    seconds = int(response.headers["Retry-After"])
    assert 1 <= seconds <= 86_401
    second = timedelta(seconds=1)
    assert before - second < until - seconds * second < after + second


def test_a_call_says_what_is_left_of_its_limit(now: datetime) -> None:
    first, second = (count("llm.user", key="ada", now=now) for _ in range(2))
    assert (first.limit, first.remaining, second.remaining) == (2, 1, 0)
    assert 0 < second.seconds <= 86_400
    with pytest.raises(RateLimited) as refused:
        count("llm.user", key="ada", now=now)
    told = refused.value.headers
    assert told["x-ratelimit-limit-requests"] == "2"
    assert told["x-ratelimit-remaining-requests"] == "0"
    assert told["x-ratelimit-reset-requests"].endswith("s")


def test_a_browser_on_a_page_is_refused_by_a_page() -> None:
    statuses(2, "/admin/login/", method="POST")
    request = RequestFactory().post("/admin/login/", REMOTE_ADDR=HERE, HTTP_ACCEPT="text/html")
    response = AddressLimitMiddleware(lambda request: HttpResponse())(request)
    assert response.status_code == 429
    assert response.headers["Content-Type"].startswith("text/html")
    assert int(response.headers["Retry-After"]) >= 1


def test_the_same_call_works_again_at_the_stated_instant_and_not_before(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, now: datetime
) -> None:
    settings.RATE_LIMITS = {"llm.user": "1/m"}
    clock = SimpleNamespace(time=now.timestamp)
    monkeypatch.setattr(core, "time", clock)
    count("llm.user", key="a", now=now)
    with pytest.raises(RateLimited) as refused:
        count("llm.user", key="a", now=now)
    until = datetime.fromisoformat(refused.value.members["retry_after_iso"])
    assert now < until <= now + timedelta(seconds=61)
    just_before = until - timedelta(milliseconds=1)
    clock.time = just_before.timestamp
    with pytest.raises(RateLimited):
        count("llm.user", key="a", now=just_before)
    clock.time = until.timestamp
    count("llm.user", key="a", now=until)


def test_addresses_of_one_ipv6_network_share_a_limit() -> None:
    assert statuses(1, "/v1/auth/login", "2001:db8:0:1::1") == [200]
    assert statuses(1, "/v1/auth/login", "2001:db8:0:1:ffff::2") == [200]
    assert statuses(1, "/v1/auth/login", "2001:db8:0:1::3") == [429]
    assert statuses(1, "/v1/auth/login", "2001:db8:0:2::1") == [200]


def test_a_forged_address_spends_the_limit_of_its_sender() -> None:
    middleware = EdgeMiddleware(AddressLimitMiddleware(lambda request: HttpResponse()))
    for number in range(4):
        request = RequestFactory().get(
            "/v1/auth/login", REMOTE_ADDR=HERE, HTTP_X_FORWARDED_FOR=f"198.51.100.{number}"
        )
        last = middleware(request)
    assert last.status_code == 429


def test_clients_behind_a_trusted_proxy_have_limits_of_their_own(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = [ip_network("10.0.0.1/32")]
    middleware = EdgeMiddleware(AddressLimitMiddleware(lambda request: HttpResponse()))
    for number in range(4):
        request = RequestFactory().get(
            "/v1/auth/login", REMOTE_ADDR="10.0.0.1", HTTP_X_FORWARDED_FOR=f"198.51.100.{number}"
        )
        assert middleware(request).status_code == 200


def test_known_networks_have_higher_limits_and_the_smallest_network_decides(
    settings: Settings,
) -> None:
    settings.RATE_LIMIT_NETWORKS = {
        ip_network("203.0.0.0/16"): 7,
        ip_network("203.0.113.7/32"): 3,
        ip_network("203.0.113.0/24"): 5,
        ip_network("2001:db8::/32"): 2,
    }
    assert statuses(7, "/v1/auth/login", HERE) == [200] * 6 + [429]
    assert statuses(11, "/v1/auth/login", ELSEWHERE) == [200] * 10 + [429]
    assert statuses(15, "/v1/auth/login", "203.0.1.1") == [200] * 14 + [429]
    assert statuses(5, "/v1/auth/login", "2001:db8::1") == [200] * 4 + [429]
    assert statuses(3, "/v1/auth/login", "198.51.100.1") == [200, 200, 429]


def test_a_limit_of_a_user_is_spent_one_by_one(now: datetime) -> None:
    count("llm.user", key="a", now=now)
    count("llm.user", key="a", now=now)
    with pytest.raises(RateLimited) as refused:
        count("llm.user", key="a", now=now)
    assert refused.value.code == "rate_limited"
    assert int(refused.value.headers["Retry-After"]) >= 1
    count("llm.user", key="b", now=now)


def test_limits_of_one_key_do_not_touch_each_other(now: datetime) -> None:
    for _ in range(2):
        count("llm.user", key="a", now=now)
    count("telemetry.user", key="a", now=now)


def test_no_header_marks_degradation_where_no_cache_is_configured() -> None:
    responses = [answered("/v1/auth/login") for _ in range(3)]
    assert responses[-1].status_code == 429
    assert not any("X-RateLimit-Degraded" in response.headers for response in responses)


@needs_redis
def test_a_request_under_one_limit_is_one_round_trip(server: OwnRedis) -> None:
    answered("/v1/license/status", ELSEWHERE)
    for status in (200, 200, 200, 429):
        with round_trips(server.client()) as sent:
            assert answered("/v1/license/status").status_code == status
        assert sent == ["EVALSHA"]
    with round_trips(server.client()) as sent:
        assert answered("/v1/usage/me").status_code == 200
    assert sent == []


@needs_redis
def test_the_cache_holds_no_person_and_no_address(server: OwnRedis, now: datetime) -> None:
    count("llm.user", key="ada@acme.test", now=now)
    answered("/v1/auth/login")
    with server.client() as client:
        keys = client.keys()
    assert len(keys) == 2
    assert not [key for key in keys if "ada" in key or "acme" in key or HERE in key]


@needs_redis
def test_the_process_counts_while_the_cache_is_away_and_marks_answers(
    server: OwnRedis, now: datetime
) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        count("llm.user", key="a", now=now)
        return HttpResponse()

    first = answered("/v1/auth/login")
    assert first.status_code == 200
    assert "X-RateLimit-Degraded" not in first.headers
    server.kill()
    responses = [answered("/v1/auth/login") for _ in range(3)]
    assert [response.status_code for response in responses] == [200, 200, 429]
    assert all(response.headers["X-RateLimit-Degraded"] == "1" for response in responses)
    # A limit that a view spends counts as well, and a request without any limit says nothing.
    assert answered("/v1/llm/complete", view=view).headers["X-RateLimit-Degraded"] == "1"
    assert "X-RateLimit-Degraded" not in answered("/v1/usage/me").headers
