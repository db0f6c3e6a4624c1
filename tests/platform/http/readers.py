"""The background tasks of exchanges, counted by tests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from gevent.monkey import is_module_patched

from config.platform.concurrency.greenlets import Task, spawn
from config.platform.http import exchange
from tests.standins.raw_server import GENEROUS, Provider
from tests.waiting import eventually

# Only a greenlet can be interrupted; a thread ends at its own timeout, maybe in another test.
CAN_INTERRUPT = is_module_patched("threading")
_of_tests: list[list[object]] = [[]]


def readers() -> int:
    """The number of tasks of this test that send a request or read its answer."""
    return len(_of_tests[-1])


@contextmanager
def readers_counted() -> Iterator[None]:
    own: list[object] = []

    def counted(run: Callable[..., None], *args: Any) -> Task:
        def over() -> None:
            own.append(run)
            try:
                run(*args)
            finally:
                own.remove(run)

        return spawn(over)

    _of_tests.append(own)
    with mock.patch.object(exchange, "spawn", counted):
        yield
    _of_tests.remove(own)


def assert_cut(provider: Provider | None = None) -> None:
    """The task has ended and so has its connection, where that is possible and there was one in time."""
    if CAN_INTERRUPT:
        assert provider is None or not provider.connections or provider.gone.wait(GENEROUS)
        eventually(lambda: not readers())
