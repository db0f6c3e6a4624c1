"""Routes that cool down, and the health of providers."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from unittest import mock
from uuid import UUID, uuid4

import pytest
from django.core.cache import cache

from llmproxy.catalogue import health, readiness
from llmproxy.catalogue.readiness import Cooling, ready_target
from llmproxy.dialects.protocol import RouteKey
from llmproxy.models import LanguageModel, Provider, Route
from tests.llmproxy.targets import target

HERE = RouteKey("here", "m {1}")
HALF_A_MINUTE = Cooling(30, is_asked=False)
LATER = timedelta(seconds=31)
MINUTE = timedelta(minutes=1)
ADA, EVE = uuid4(), uuid4()


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
    readiness._silent_since.clear()


def fail(now: datetime, *, times: int = 3, wait: int | None = None) -> None:
    for _ in range(times):
        readiness.note_failure(HERE, wait=wait, now=now)


def be_silent(now: datetime, *, to: UUID = ADA, after: timedelta = MINUTE) -> None:
    """To a call that was sent so long ago; seen by a process that has seen nothing before."""
    forget()
    readiness.note_silence(HERE, person=to, asked_at=now - after, now=now)


def is_cooling(now: datetime) -> bool:
    return readiness.shown(HERE, now=now) is not None


def test_a_route_cools_down_after_failures_in_a_row_for_all_processes(now: datetime) -> None:
    fail(now, times=2)
    assert readiness.cooling(HERE, now=now) is None
    fail(now, times=1)
    forget()
    assert readiness.cooling(HERE, now=now) == HALF_A_MINUTE
    assert readiness.cooling(HERE, now=now + timedelta(seconds=29)) == Cooling(1, is_asked=False)
    assert readiness.cooling(RouteKey("here", "other"), now=now) is None


def test_an_answer_between_failures_ends_the_row(now: datetime) -> None:
    fail(now, times=2)
    before = readiness._failing_since[HERE] - 1
    # Asked for before the failures, it does not say that the route works again.
    readiness.note_answer(HERE, asked_at=before)
    assert readiness._failures[HERE] == 2
    readiness.note_answer(HERE, asked_at=before + 2)
    fail(now, times=2)
    assert readiness.cooling(HERE, now=now) is None


def test_silent_streams_of_one_person_at_once_cool_nothing(now: datetime) -> None:
    """Eight streams that think past the limit sent everybody to the second route."""
    for milliseconds in range(8):
        be_silent(now + timedelta(milliseconds=milliseconds))
    assert not is_cooling(now)


def test_a_route_that_is_silent_to_two_people_cools_down(now: datetime) -> None:
    be_silent(now)
    assert not is_cooling(now)
    be_silent(now, to=EVE)
    assert is_cooling(now)
    # It is tried again, and one silence is enough now.
    assert readiness.cooling(HERE, now=now + LATER) is None
    be_silent(now + LATER)
    assert is_cooling(now + LATER)


def test_six_silences_in_a_row_cool_a_route_for_one_person_too(now: datetime) -> None:
    for number in range(1, 7):
        assert not is_cooling(now + number * MINUTE)
        be_silent(now + number * MINUTE, after=timedelta(seconds=59))
    assert is_cooling(now + 6 * MINUTE)


@pytest.mark.parametrize("knows", [True, False], ids=["here", "in another process"])
def test_an_answer_between_silences_ends_the_row(now: datetime, knows: bool) -> None:
    for number in range(1, 6):
        be_silent(now + number * MINUTE, after=timedelta(seconds=59))
    if not knows:
        forget()
        readiness.cooling(HERE, now=now)
    asked_at = readiness._silent_since[HERE] + 1
    readiness.note_answer(HERE, asked_at=asked_at - 2)
    readiness.note_answer(HERE, asked_at=asked_at)
    be_silent(now + 6 * MINUTE, to=EVE)
    assert not is_cooling(now + 6 * MINUTE)
    be_silent(now + 6 * MINUTE)
    assert is_cooling(now + 6 * MINUTE)


def test_a_wait_that_the_provider_asks_for_is_kept_to(now: datetime) -> None:
    fail(now, times=1, wait=90)
    forget()
    assert readiness.cooling(HERE, now=now) == Cooling(90, is_asked=True)
    assert readiness.cooling(HERE, now=now + timedelta(seconds=91)) is None


def test_one_call_at_a_time_tries_a_failed_route_after_it(now: datetime) -> None:
    fail(now)
    assert readiness.cooling(HERE, now=now + LATER) is None
    assert readiness.cooling(HERE, now=now + LATER) == Cooling(1, is_asked=False)
    forget()
    assert readiness.cooling(HERE, now=now + LATER) == Cooling(1, is_asked=False)
    # The try fails: one failure is enough now.
    fail(now + LATER, times=1)
    assert readiness.cooling(HERE, now=now + LATER) == HALF_A_MINUTE
    # Another begins to be answered, and all may ask again.
    assert readiness.cooling(HERE, now=now + 2 * LATER) is None
    readiness.note_beginning(HERE)
    assert readiness.cooling(HERE, now=now + 2 * LATER) is None
    forget()
    assert readiness.cooling(HERE, now=now + 2 * LATER) is None


def test_a_process_reads_the_state_of_a_route_once_for_as_long_as_it_holds(now: datetime) -> None:
    with (
        mock.patch.object(readiness, "HOLDS_SECONDS", 600.0),
        mock.patch.object(cache, "get", wraps=cache.get) as reads,
    ):
        for _ in range(20):
            readiness.cooling(HERE, now=now)
    keys = [call.args[0] for call in reads.call_args_list]
    assert len(keys) == len(set(keys))


@pytest.mark.django_db
def test_operators_see_answers_failures_and_cooling_routes(now: datetime) -> None:
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
    assert found["here"].cooling == {HERE.model: HALF_A_MINUTE}
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
