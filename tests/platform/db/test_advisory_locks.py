"""Advisory locks on a real server."""

import time

import pytest

from config.platform.db.advisory_locks import alone

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_lock_has_one_holder_per_name() -> None:
    with alone("a night") as first, alone("a night") as second, alone("a day") as other:
        assert (first, second, other) == (True, False, True)
    with alone("a night") as again:
        assert again


def test_a_lock_outlasts_the_limit_of_idle_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c idle_in_transaction_session_timeout=50ms")
    with alone("a long night"):
        time.sleep(0.3)
        with alone("a long night") as second:
            assert not second


def test_a_lock_is_released_when_its_work_fails() -> None:
    with pytest.raises(RuntimeError), alone("a bad night"):
        raise RuntimeError
    with alone("a bad night") as again:
        assert again
