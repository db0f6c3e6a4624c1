"""Limits of failures count exactly, also concurrently, and count failures only."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from threading import Event, Thread

import pytest
from django.core.cache import cache, caches
from pytest_django import Settings

from config.api.problems import ServiceUnavailable
from config.ratelimits import failed_logins, redis_counters
from config.ratelimits.failed_logins import attempt
from config.ratelimits.limits import RateLimited
from config.ratelimits.redis_counters import BUSY, STARTED
from config.ratelimits.table import FailureLimit
from tests.config.own_redis import OwnRedis, own_redis, round_trips
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
        "default": {"BACKEND": "config.ratelimits.cache.CounterCache", "LOCATION": ""}
    }
    settings.RATE_LIMITS = {"auth.account": f"{LIMIT}/h", "auth.all": "5/h"}
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def in_redis(redis: OwnRedis, in_process: None, settings: Settings) -> None:
    backend = {"BACKEND": "config.ratelimits.cache.CounterCache", "LOCATION": redis.url}
    settings.CACHES = {"default": backend}
    cache.clear()


@pytest.fixture(params=["process", pytest.param("redis", marks=needs_redis)])
def counted(request: pytest.FixtureRequest) -> None:
    """Both ways of counting."""
    request.getfixturevalue(f"in_{request.param}")


def fail(*limits: tuple[FailureLimit, str], now: datetime) -> None:
    with pytest.raises(Wrong), attempt(*limits, failing=Wrong, now=now):
        raise Wrong


def outcome(doing: Callable[[], object], now: datetime) -> str:
    try:
        with attempt(ACCOUNT, ALL, failing=Wrong, now=now):
            doing()
    except (Wrong, RateLimited, ServiceUnavailable) as error:
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

    def test_concurrent_successes_are_not_refused(self, now: datetime) -> None:
        assert set(race(*[lambda: outcome(lambda: None, now)] * 24)) == {"done"}

    def test_an_attempt_waits_while_every_place_is_taken(self, now: datetime) -> None:
        outcomes: list[str] = []
        waiting = Thread(target=lambda: outcomes.append(outcome(lambda: None, now)))
        with ExitStack() as held:
            for _ in range(LIMIT):
                held.enter_context(attempt(ACCOUNT, failing=Wrong, now=now))
            waiting.start()
            waiting.join(0.1)
            assert outcomes == []
        waiting.join(30)
        assert outcomes == ["done"]

    def test_an_attempt_does_not_wait_for_ever(
        self, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(failed_logins, "WAIT_SECONDS", 0.05)
        with ExitStack() as held:
            for _ in range(LIMIT):
                held.enter_context(attempt(ACCOUNT, failing=Wrong, now=now))
            with pytest.raises(ServiceUnavailable) as away:
                held.enter_context(attempt(ACCOUNT, failing=Wrong, now=now))
            assert away.value.headers["Retry-After"] == "2"

    def test_a_waiting_attempt_is_refused_once_the_others_have_failed(self, now: datetime) -> None:
        begun, fail_now = Event(), Event()

        def fails_later() -> None:
            begun.set()
            assert fail_now.wait(30)
            raise Wrong

        for _ in range(LIMIT - 1):
            fail(ACCOUNT, now=now)
        outcomes: list[str] = []
        first = Thread(target=lambda: outcomes.append(outcome(fails_later, now)))
        first.start()
        assert begun.wait(30)
        second = Thread(target=lambda: outcomes.append(outcome(lambda: None, now)))
        second.start()
        second.join(0.1)
        fail_now.set()
        first.join(30)
        second.join(30)
        assert outcomes == ["Wrong", "RateLimited"]

    def test_failures_expire(self, now: datetime, settings: Settings) -> None:
        settings.RATE_LIMITS = {"auth.account": "1/s"}
        fail(ACCOUNT, now=now)
        with pytest.raises(RateLimited) as refused, attempt(ACCOUNT, failing=Wrong, now=now):
            pass
        assert refused.value.headers["Retry-After"] == "1"
        done = Event()
        while not done.wait(0.05) and datetime.now(UTC) - now < timedelta(seconds=30):
            try:
                fail(ACCOUNT, now=now)
                done.set()
            except RateLimited:
                continue
        assert done.is_set()


@needs_redis
@pytest.mark.usefixtures("in_redis")
class TestInRedis:
    def test_an_attempt_is_two_round_trips_without_personal_data(
        self, redis: OwnRedis, now: datetime
    ) -> None:
        fail(ACCOUNT, now=now)
        with round_trips(redis.client()) as sent:
            fail(ACCOUNT, now=now)
        assert sent == ["EVALSHA", "EVALSHA"]
        with redis.client() as client:
            (key,) = client.keys()
        assert "ada" not in key

    def test_an_attempt_of_a_killed_process_ends_by_itself(
        self, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_counters, "ATTEMPT_SECONDS", 0.1)
        for number in range(LIMIT):
            assert caches["default"].begin_attempt("killed", str(number), limit=LIMIT) == STARTED
        assert caches["default"].begin_attempt("killed", "next", limit=LIMIT) == BUSY
        ended = Event()
        while caches["default"].begin_attempt("killed", "next", limit=LIMIT) != STARTED:
            assert not ended.wait(0.01)
            assert datetime.now(UTC) - now < timedelta(seconds=30)

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
