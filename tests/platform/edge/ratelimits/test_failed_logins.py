"""Limits of failures count exactly, also concurrently, and count failures only."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from threading import Event

import pytest
from django.core.cache import cache
from pytest_django import Settings

from config.platform.edge.ratelimits.failed_logins import attempt
from config.platform.edge.ratelimits.limits import RateLimited
from config.platform.edge.ratelimits.table import FailureLimit
from tests.platform.edge.ratelimits.own_redis import OwnRedis, own_redis, round_trips
from tests.races import race
from tests.tools.redis import available

needs_redis = pytest.mark.skipif(not available(), reason="no Redis for this Python")
ACCOUNT: tuple[FailureLimit, str] = ("auth.account", "ada@acme.test")
OTHER: tuple[FailureLimit, str] = ("auth.account", "bob@acme.test")
ALL: tuple[FailureLimit, str] = ("auth.all", "")
LIMIT = 3


class Wrong(Exception):
    pass


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def redis() -> Iterator[OwnRedis]:
    with own_redis() as server:
        yield server


@pytest.fixture
def in_process(settings: Settings) -> Iterator[None]:
    settings.CACHES = {
        "default": {"BACKEND": "config.platform.edge.ratelimits.cache.CounterCache", "LOCATION": ""}
    }
    settings.RATE_LIMITS = {"auth.account": f"{LIMIT}/h", "auth.all": "5/h"}
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def in_redis(redis: OwnRedis, in_process: None, settings: Settings) -> None:
    backend = {
        "BACKEND": "config.platform.edge.ratelimits.cache.CounterCache",
        "LOCATION": redis.url,
    }
    settings.CACHES = {"default": backend}
    cache.clear()


@pytest.fixture(params=["process", pytest.param("redis", marks=needs_redis)])
def counted(request: pytest.FixtureRequest) -> None:
    """Both ways of counting."""
    request.getfixturevalue(f"in_{request.param}")


def fail(*limits: tuple[FailureLimit, str], now: datetime) -> None:
    with pytest.raises(Wrong), attempt(*limits, failing=Wrong, now=now):
        raise Wrong


def fail_for(time: timedelta, *, now: datetime) -> None:
    began = datetime.now(UTC)
    while datetime.now(UTC) - began < time:
        fail(ACCOUNT, now=now)


def outcome(doing: Callable[[], object], now: datetime) -> str:
    try:
        with attempt(ACCOUNT, ALL, failing=Wrong, now=now):
            doing()
    except (Wrong, RateLimited) as error:
        return type(error).__name__
    return "done"


@pytest.mark.usefixtures("counted")
class TestCounting:
    def test_attempts_are_refused_once_the_limit_has_failed(self, now: datetime) -> None:
        for _ in range(LIMIT):
            fail(ACCOUNT, now=now)
        with pytest.raises(RateLimited) as refused, attempt(ACCOUNT, failing=Wrong, now=now):
            raise AssertionError("nothing may be tried any more")
        until = datetime.fromisoformat(refused.value.members["retry_after_iso"])
        assert timedelta(minutes=59) < until - now <= timedelta(hours=1, seconds=1)
        with attempt(OTHER, failing=Wrong, now=now):
            pass

    def test_successes_and_other_errors_are_not_counted(self, now: datetime) -> None:
        for _ in range(LIMIT * 3):
            with attempt(ACCOUNT, ALL, failing=Wrong, now=now):
                pass
            with pytest.raises(KeyError), attempt(ACCOUNT, ALL, failing=Wrong, now=now):
                raise KeyError
        for _ in range(LIMIT):
            fail(ACCOUNT, now=now)

    def test_an_attempt_refused_by_one_limit_spends_nothing_of_another(self, now: datetime) -> None:
        for _ in range(LIMIT):
            fail(ACCOUNT, ALL, now=now)
        for _ in range(10):
            with pytest.raises(RateLimited), attempt(ALL, ACCOUNT, failing=Wrong, now=now):
                pass
        for _ in range(5 - LIMIT):
            fail(OTHER, ALL, now=now)
        with pytest.raises(RateLimited), attempt(OTHER, ALL, failing=Wrong, now=now):
            pass

    def test_exactly_the_limit_fails_of_concurrent_attempts(self, now: datetime) -> None:
        def wrong() -> None:
            raise Wrong

        outcomes = race(*[lambda: outcome(wrong, now)] * 24)
        assert sorted(outcomes) == ["RateLimited"] * (24 - LIMIT) + ["Wrong"] * LIMIT

    def test_concurrent_successes_leave_no_trace(self, now: datetime) -> None:
        assert set(race(*[lambda: outcome(lambda: None, now)] * 24)) <= {"done", "RateLimited"}
        for _ in range(LIMIT):
            fail(ACCOUNT, now=now)

    def test_running_attempts_count_until_they_succeed(self, now: datetime) -> None:
        with ExitStack() as held:
            for _ in range(LIMIT):
                held.enter_context(attempt(ACCOUNT, failing=Wrong, now=now))
            assert outcome(lambda: None, now) == "RateLimited"
        assert outcome(lambda: None, now) == "done"

    def test_failures_expire(self, now: datetime, settings: Settings) -> None:
        settings.RATE_LIMITS = {"auth.account": "1/s"}
        # On a slow machine the second may be over before an attempt is refused.
        with pytest.raises(RateLimited) as refused:
            fail_for(timedelta(seconds=60), now=now)
        assert refused.value.headers["Retry-After"] == "1"
        began, done = datetime.now(UTC), Event()
        while not done.wait(0.05) and datetime.now(UTC) - began < timedelta(seconds=60):
            try:
                fail(ACCOUNT, now=now)
                done.set()
            except RateLimited:
                continue
        assert done.is_set()


@needs_redis
@pytest.mark.usefixtures("in_redis")
class TestInRedis:
    def test_a_failure_is_one_round_trip_without_personal_data(
        self, redis: OwnRedis, now: datetime
    ) -> None:
        fail(ACCOUNT, now=now)
        with round_trips(redis.client()) as sent:
            fail(ACCOUNT, now=now)
        assert sent == ["EVALSHA"]
        with redis.client() as client:
            (key,) = client.keys()
        assert "ada" not in key

    def test_the_process_counts_attempts_while_redis_is_away(
        self, redis: OwnRedis, now: datetime
    ) -> None:
        fail(ACCOUNT, now=now)
        redis.kill()
        try:
            for _ in range(LIMIT):
                fail(ACCOUNT, now=now)
            with pytest.raises(RateLimited), attempt(ACCOUNT, failing=Wrong, now=now):
                pass
        finally:
            redis.start()
