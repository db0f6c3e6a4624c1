"""The background tasks of exchanges, counted by tests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from gevent.monkey import is_module_patched

from config.platform.http import exchange
from config.platform.runtime.greenlets import Task, spawn
from tests.standins.raw_server import GENEROUS, Provider, eventually

# Only a greenlet can be interrupted; a thread ends at its own timeout.
CAN_INTERRUPT = is_module_patched("threading")
_readers: list[object] = []


def readers() -> int:
    """The number of tasks that send a request or read its answer."""
    return len(_readers)


@contextmanager
def readers_counted() -> Iterator[None]:
    def counted(run: Callable[..., None], *args: Any) -> Task:
        def over() -> None:
            _readers.append(run)
            try:
                run(*args)
            finally:
                _readers.remove(run)

        return spawn(over)

    with mock.patch.object(exchange, "spawn", counted):
        yield


def assert_cut(provider: Provider | None = None) -> None:
    """The task has ended and so has its connection, where that is possible and there was one in time."""
    if CAN_INTERRUPT:
        assert provider is None or not provider.connections or provider.gone.wait(GENEROUS)
        assert eventually(lambda: not readers())
