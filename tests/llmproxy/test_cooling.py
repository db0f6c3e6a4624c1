"""Routes that cool down, and the health of providers."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from unittest import mock

import pytest
from django.core.cache import cache

from llmproxy.catalogue import health, readiness
from llmproxy.catalogue.readiness import Cooling, ready_target
from llmproxy.dialects.protocol import RouteKey
from llmproxy.models import LanguageModel, Provider, Route
from tests.llmproxy.targets import target

HERE = RouteKey("here", "m {1}")
LATER = timedelta(seconds=readiness.COOL_SECONDS + 1)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    forget()
    cache.clear()


def forget() -> None:
    """As another process, which has seen nothing yet."""
    readiness._seen.clear()
    readiness._failures.clear()
    readiness._failing_since.clear()


def fail(now: datetime, *, times: int = readiness.FAILURES, wait: int | None = None) -> None:
    for _ in range(times):
        readiness.note_failure(HERE, wait=wait, now=now)


def test_a_route_cools_down_after_failures_in_a_row_for_all_processes(now: datetime) -> None:
    fail(now, times=readiness.FAILURES - 1)
    assert readiness.cooling(HERE, now=now) is None
    fail(now, times=1)
    forget()
    assert readiness.cooling(HERE, now=now) == Cooling(readiness.COOL_SECONDS, is_asked=False)
    assert readiness.cooling(RouteKey("here", "other"), now=now) is None


def test_an_answer_between_failures_ends_the_row(now: datetime) -> None:
    fail(now, times=readiness.FAILURES - 1)
    before = readiness._failing_since[HERE] - 1
    # Asked for before the failures, it does not say that the route works again.
    readiness.note_answer(HERE, asked_at=before)
    assert readiness._failures[HERE] == readiness.FAILURES - 1
    readiness.note_answer(HERE, asked_at=before + 2)
    fail(now, times=readiness.FAILURES - 1)
    assert readiness.cooling(HERE, now=now) is None


def test_a_wait_that_the_provider_asks_for_is_kept_to(now: datetime) -> None:
    fail(now, times=1, wait=90)
    forget()
    assert readiness.cooling(HERE, now=now) == Cooling(90, is_asked=True)
    assert readiness.cooling(HERE, now=now + timedelta(seconds=91)) is None


def test_after_it_one_call_at_a_time_tries_a_failed_route(now: datetime) -> None:
    fail(now)
    assert readiness.cooling(HERE, now=now + LATER) is None
    assert readiness.cooling(HERE, now=now + LATER) == Cooling(1, is_asked=False)
    forget()
    assert readiness.cooling(HERE, now=now + LATER) == Cooling(1, is_asked=False)
    # The try fails: one failure is enough now.
    fail(now + LATER, times=1)
    assert readiness.cooling(HERE, now=now + LATER) == Cooling(
        readiness.COOL_SECONDS, is_asked=False
    )
    # Another begins to be answered, and all may ask again.
    assert readiness.cooling(HERE, now=now + 2 * LATER) is None
    readiness.note_beginning(HERE)
    assert readiness.cooling(HERE, now=now + 2 * LATER) is None
    forget()
    assert readiness.cooling(HERE, now=now + 2 * LATER) is None


def test_a_process_reads_the_state_of_a_route_once_a_second_at_most(now: datetime) -> None:
    with mock.patch.object(cache, "get", wraps=cache.get) as reads:
        for _ in range(20):
            readiness.cooling(HERE, now=now)
    assert reads.call_count == 1


@pytest.mark.django_db
def test_operators_see_answers_failures_and_what_cools_down(now: datetime) -> None:
    provider = Provider.objects.create(name="here")
    model = LanguageModel.objects.create(name="m", provider_name="m")
    Route.objects.create(model=model, provider=provider, provider_name=HERE.model)
    for failed in (True, False, False):
        health.note("here", failed=failed)
    health.write_counts(now=now)
    health.note("here", failed=False)
    health.write_counts(now=now)
    fail(now)
    found = health.health_of(["here", "elsewhere"], now=now + timedelta(minutes=4))
    assert found["here"] == (3, 1, {})
    assert found["elsewhere"] == (0, 0, {})
    found = health.health_of(["here"], now=now)
    assert found["here"].cooling == {HERE.model: Cooling(readiness.COOL_SECONDS, is_asked=False)}
    assert health.health_of(["here"], now=now + timedelta(minutes=5))["here"][:2] == (0, 0)


def test_many_calls_that_fail_at_once_are_written_once(
    now: datetime, caplog: pytest.LogCaptureFixture
) -> None:
    fail(now, times=50)
    assert [each.message for each in caplog.records] == ["route_cools_down"]
    fail(now, times=1, wait=7)
    assert readiness.cooling(HERE, now=now) == Cooling(7, is_asked=True)


def test_a_try_is_given_back_where_the_provider_has_no_call_left(now: datetime) -> None:
    tried = target()._replace(provider=HERE.provider, model=HERE.model, calls_per_minute=0)
    other = target()
    fail(now)
    for _ in range(2):
        assert ready_target([tried, other], is_only=False, now=now + LATER) is other
        assert readiness.cooling(HERE, now=now + LATER) is None
        readiness.end_try(HERE)
