"""Prints how four concurrent executions end when the second is killed, by where it is then.

And how one ends that follows an execution killed while it acquired a connection.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
from django.conf import settings  # noqa: E402
from gevent.event import Event  # noqa: E402

from config.platform.concurrency import batches  # noqa: E402
from config.platform.concurrency.batching import BatchedStatement  # noqa: E402

SECONDS = 60


class _Doubling(BatchedStatement):
    """Answers in place of a database, when it may."""

    def __init__(self) -> None:
        super().__init__("")
        self.first_started, self.first_may = Event(), Event()
        self.others_started, self.others_may = Event(), Event()
        self.acquires, self.may_acquire = Event(), Event()
        self.may_acquire.set()

    def acquire(self, leader: Any) -> Any:
        self.acquires.set()
        assert self.may_acquire.wait(SECONDS)

    def run(self, batch: list[Any], resource: Any) -> None:
        values = [each.values for each in batch]
        if values == [1]:
            self.first_started.set()
            assert self.first_may.wait(SECONDS)
        elif 2 in values:
            self.others_started.set()
            assert self.others_may.wait(SECONDS)
        for each in batch:
            each.row, each.error = 2 * each.values, None


def _ends(killed: str) -> list[Any]:
    statement = _Doubling()
    asking = [gevent.spawn(statement.row, 1)]
    assert statement.first_started.wait(SECONDS)
    asking += [gevent.spawn(statement.row, number) for number in (2, 3, 4)]
    gevent.sleep(0)
    assert len(statement.waiting) == 3
    second = asking[1]
    if killed == "waiting":
        second.kill()
    statement.first_may.set()
    if killed == "in flight":
        assert statement.others_started.wait(SECONDS)
        second.kill()
    statement.others_may.set()
    gevent.joinall(asking, timeout=2 * SECONDS)
    assert statement.row(5) == 10
    assert not statement.waiting
    return [_end(each) for each in asking]


def _after_a_killed_leader() -> Any:
    statement = _Doubling()
    statement.may_acquire.clear()
    first = gevent.spawn(statement.row, 6)
    assert statement.acquires.wait(SECONDS)
    first.kill()
    statement.may_acquire.set()
    gevent.sleep(0.01)
    return _row(statement, 7)


def _row(statement: _Doubling, value: int) -> Any:
    try:
        return statement.row(value)
    except Exception as error:  # noqa: BLE001 - printed
        return type(error).__name__


def _end(asker: gevent.Greenlet) -> Any:
    assert asker.ready()
    if asker.exception is not None:
        return type(asker.exception).__name__
    return type(asker.value).__name__ if isinstance(asker.value, BaseException) else asker.value


if __name__ == "__main__":
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "none",
        "OPTIONS": {"pool": True},
    }
    settings.configure(DATABASES={"default": database})
    batches.PATIENCE_SECONDS = batches.WAIT_SECONDS = SECONDS
    # gevent prints the errors of greenlets by itself.
    gevent.get_hub().exception_stream = None
    ends = {kind: _ends(kind) for kind in ("waiting", "in flight")}
    print(json.dumps(ends | {"acquiring": _after_a_killed_leader()}))
