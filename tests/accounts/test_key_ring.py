"""What a process knows of keys, from when on, and what it costs."""

from datetime import datetime, timedelta
from threading import Event, Thread

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from accounts.audit import Actor
from accounts.key_ring import RELOAD_SECONDS, KeyRing
from accounts.models import SigningKey
from accounts.signing_keys import replace_signing_keys, rotate_signing_key

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
    monkeypatch.setattr("accounts.key_ring.monotonic", clock)
    monkeypatch.setattr("accounts.key_ring.sleep", clock.sleep)
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
def test_a_kid_never_heard_of_is_looked_for_before_it_is_refused(
    signing_key: None, by: Actor, now: datetime, clock: Clock
) -> None:
    other = KeyRing()
    other.signer(now=now)
    key = replace_signing_keys(by=by, now=now)
    assert other.verifier(key.kid, now=now) is not None


@pytest.mark.django_db
def test_strangers_have_rows_read_twice_a_second_and_what_is_no_kid_not_at_all(
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
def test_what_was_revoked_is_known_and_not_looked_for(
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
        patch.setattr(SigningKey.objects, "all", _away)
        assert ring.signer(now=now)[0] == kid
        assert ring.verifier(kid, now=now) is not None
        # Whether a stranger's kid is a key of ours cannot be known now, and that is no refusal.
        with pytest.raises(OperationalError):
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
        patch.setattr(SigningKey.objects, "all", _away)
        with pytest.raises(OperationalError):
            ring.signer(now=now)


@pytest.mark.django_db(transaction=True)
def test_nobody_waits_while_another_reads(signing_key: None, now: datetime, clock: Clock) -> None:
    ring = KeyRing()
    kid, _ = ring.signer(now=now)
    clock.sleep(RELOAD_SECONDS)
    reading, go_on = Event(), Event()
    read = SigningKey.objects.all

    def slowly() -> object:
        reading.set()
        assert go_on.wait(30)
        return read()

    def ask() -> None:
        ring.signer(now=now)
        connection.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SigningKey.objects, "all", slowly)
        slow = Thread(target=ask)
        slow.start()
        assert reading.wait(30)
        assert ring.signer(now=now)[0] == kid
        go_on.set()
        slow.join(30)


def _away() -> object:
    raise OperationalError
