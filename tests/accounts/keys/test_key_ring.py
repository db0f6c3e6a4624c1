"""A process's knowledge of keys, from when on, and its cost."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Event

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from accounts.audit import Actor
from accounts.keys import key_ring
from accounts.keys.key_ring import (
    BELIEVED_SECONDS,
    RELOAD_FOR_UNKNOWN_SECONDS,
    RELOAD_SECONDS,
    KeyRing,
)
from accounts.keys.signing_keys import replace_signing_keys, rotate_signing_key
from accounts.models import SigningKey
from config.platform.problems.problem import ServiceUnavailable
from tests.races import race

AT_ONCE = timedelta(0)
STRANGER = "A" * 43


class Clock:
    """The seconds of the rings of a test; what is waited goes by at once."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.waited: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.seconds += seconds

    def __call__(self) -> float:
        # As a real one, it never says the same twice.
        self.seconds += 1e-6
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("accounts.keys.key_ring.monotonic", clock)
    monkeypatch.setattr("accounts.keys.key_ring.sleep", clock.sleep)
    return clock


@pytest.mark.django_db
def test_a_new_key_is_known_to_another_process_before_it_signs(
    signing_key: None, by: Actor, now: datetime, clock: Clock
) -> None:
    other = KeyRing()
    other.signer(now=now)
    key = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now)
    wait = (key.signs_from - now).total_seconds()
    assert wait > RELOAD_SECONDS
    clock.sleep(RELOAD_SECONDS)
    assert key.kid.encode() in other.jwks(now=now)[0]
    assert other.signer(now=key.signs_from)[0] == key.kid


@pytest.mark.django_db
def test_an_unknown_kid_is_looked_up_before_it_is_refused(
    signing_key: None, by: Actor, now: datetime, clock: Clock
) -> None:
    other = KeyRing()
    other.signer(now=now)
    key = replace_signing_keys(by=by, now=now)
    assert other.verifier(key.kid, now=now) is not None


@pytest.mark.django_db
def test_unknown_kids_read_rows_twice_a_second_and_malformed_ones_never(
    signing_key: None, now: datetime, clock: Clock
) -> None:
    ring = KeyRing()
    ring.signer(now=now)
    began = clock.seconds
    with CaptureQueriesContext(connection) as queries:
        for _ in range(10):
            assert ring.verifier(STRANGER, now=now) is None
    assert len(queries) == 10
    assert clock.seconds - began >= 10 * 0.49
    with CaptureQueriesContext(connection) as queries:
        for kid in ("", "x", "../../etc/passwd", STRANGER + "A", "\ud800" * 43):
            assert ring.verifier(kid, now=now) is None
    assert len(queries) == 0


@pytest.mark.django_db
def test_a_revoked_key_is_known_and_not_looked_for(
    signing_key: None, by: Actor, now: datetime, clock: Clock
) -> None:
    (old,) = SigningKey.objects.all()
    replace_signing_keys(by=by, now=now)
    ring = KeyRing()
    ring.signer(now=now)
    with CaptureQueriesContext(connection) as queries:
        assert ring.verifier(old.kid, now=now) is None
    assert (len(queries), clock.waited) == (0, [])


@pytest.mark.django_db
def test_a_key_that_was_published_on_a_faster_clock_verifies(
    signing_key: None, by: Actor, now: datetime
) -> None:
    key = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now)
    behind = now - timedelta(seconds=30)
    assert KeyRing().verifier(key.kid, now=behind) is not None


@pytest.mark.django_db(transaction=True)
def test_known_keys_go_on_while_the_database_is_away(
    signing_key: None, now: datetime, clock: Clock
) -> None:
    ring = KeyRing()
    kid, _ = ring.signer(now=now)
    clock.sleep(RELOAD_SECONDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_ring, "read_rows", _away)
        assert ring.signer(now=now)[0] == kid
        assert ring.verifier(kid, now=now) is not None
        # A stranger's kid cannot be checked against our keys now, and that is no refusal.
        with pytest.raises(ServiceUnavailable):
            ring.verifier(STRANGER, now=now)
    clock.sleep(RELOAD_SECONDS)
    assert ring.verifier(STRANGER, now=now) is None


@pytest.mark.django_db
def test_a_fault_inside_a_transaction_is_not_hidden_from_it(
    signing_key: None, now: datetime, clock: Clock
) -> None:
    ring = KeyRing()
    ring.signer(now=now)
    clock.sleep(RELOAD_SECONDS)
    with pytest.MonkeyPatch.context() as patch, transaction.atomic():
        patch.setattr(key_ring, "read_rows", _away)
        with pytest.raises(OperationalError):
            ring.signer(now=now)


def away_after_long(clock: Clock, tried: list[float]) -> Callable[[], None]:
    """A reading that fails after five seconds, and when it was tried."""

    def read() -> None:
        tried.append(clock.seconds)
        clock.sleep(5)
        raise OperationalError

    return read


@pytest.mark.django_db(transaction=True)
def test_a_reading_that_failed_counts_from_its_end(
    signing_key: None, now: datetime, clock: Clock
) -> None:
    ring = KeyRing()
    kid, _ = ring.signer(now=now)
    clock.sleep(RELOAD_SECONDS)
    tried: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_ring, "read_rows", away_after_long(clock, tried))
        for _ in range(3):
            assert ring.signer(now=now)[0] == kid
        assert len(tried) == 1
        clock.sleep(RELOAD_FOR_UNKNOWN_SECONDS)
        assert ring.signer(now=now)[0] == kid
        assert len(tried) == 2


@pytest.mark.django_db(transaction=True)
def test_keys_whose_rows_cannot_be_read_are_listed_but_not_believed_for_long(
    signing_key: None, now: datetime, clock: Clock
) -> None:
    ring = KeyRing()
    kid, _ = ring.signer(now=now)
    jwks = ring.jwks(now=now)
    clock.sleep(BELIEVED_SECONDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_ring, "read_rows", _away)
        with pytest.raises(OperationalError):
            ring.signer(now=now)
        with pytest.raises(ServiceUnavailable):
            ring.verifier(kid, now=now)
        assert ring.jwks(now=now) == jwks
    clock.sleep(RELOAD_FOR_UNKNOWN_SECONDS)
    assert ring.verifier(kid, now=now) is not None


@pytest.mark.django_db(transaction=True)
def test_a_caller_whose_reading_fails_does_not_wait_for_another(
    signing_key: None, now: datetime, clock: Clock
) -> None:
    ring = KeyRing()
    tried: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_ring, "read_rows", away_after_long(clock, tried))
        ended = race(*[lambda: ring.jwks(now=now)] * 4)
    assert sorted(type(each).__name__ for each in ended) == [
        "OperationalError",
        *["ServiceUnavailable"] * 3,
    ]
    assert len(tried) == 1


@pytest.mark.django_db(transaction=True)
def test_nobody_waits_for_a_reading_that_takes_long(
    signing_key: None, by: Actor, now: datetime, clock: Clock
) -> None:
    ring = KeyRing()
    kid, _ = ring.signer(now=now)
    clock.sleep(RELOAD_SECONDS)
    read, go_on = key_ring.read_rows, Event()
    begun: list[float] = []

    def slowly() -> object:
        begun.append(clock.seconds)
        assert go_on.wait(30)
        return read()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_ring, "read_rows", slowly)
        try:
            # The first has them read, and goes on before they are.
            for _ in range(3):
                assert ring.signer(now=now)[0] == kid
            key = replace_signing_keys(by=by, now=now)
        finally:
            go_on.set()
            for thread in threading.enumerate():
                if thread.name == "keys":
                    thread.join(30)
        assert ring.signer(now=now)[0] == key.kid
    assert len(begun) == 1


@pytest.mark.django_db(transaction=True)
def test_a_caller_who_comes_while_they_are_read_waits_for_them_too(
    signing_key: None, by: Actor, now: datetime, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accounts.keys.key_ring.WAIT_SECONDS", 30)
    ring = KeyRing()
    kid, _ = ring.signer(now=now)
    replace_signing_keys(by=by, now=now)
    clock.sleep(RELOAD_SECONDS)
    read, begun, go_on = key_ring.read_rows, Event(), Event()

    def slowly() -> object:
        begun.set()
        assert go_on.wait(30)
        return read()

    monkeypatch.setattr(key_ring, "read_rows", slowly)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(ring.verifier, kid, now=now)
        assert begun.wait(30)
        second = pool.submit(ring.verifier, kid, now=now)
        threading.Timer(0.2, go_on.set).start()
        assert (first.result(30), second.result(30)) == (None, None)


@pytest.mark.django_db(transaction=True)
def test_a_process_that_was_idle_waits_for_the_rows_before_it_believes(
    signing_key: None, by: Actor, now: datetime, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accounts.keys.key_ring.WAIT_SECONDS", 0)
    ring = KeyRing()
    kid, _ = ring.signer(now=now)
    replace_signing_keys(by=by, now=now)
    clock.sleep(BELIEVED_SECONDS)
    assert ring.verifier(kid, now=now) is None


def _away() -> object:
    raise OperationalError
