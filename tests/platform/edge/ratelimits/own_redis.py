"""A Redis of a test's own, to be killed, frozen and started again."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from redis.client import Monitor

from tests.tools.children import Child
from tests.tools.redis import Redis


class OwnRedis:
    """``url`` stays the same over all its lives."""

    def __init__(self, folder: Path) -> None:
        self._server = Redis(folder=folder, sockets=folder, log=folder / "redis.log")
        self._child: Child = self._server.start()
        self.url = self._server.url

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)

    def kill(self) -> None:
        if self._child.ended is None:
            os.kill(self._child.pid, signal.SIGKILL)
            self._child.stop()

    def start(self) -> None:
        self.kill()
        self._child = self._server.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It takes connections and answers nothing."""
        os.kill(self._child.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._child.pid, signal.SIGCONT)


@contextmanager
def own_redis() -> Iterator[OwnRedis]:
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        server = OwnRedis(Path(folder))
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def round_trips(client: redis.Redis) -> Iterator[list[str]]:
    """The commands that other clients send meanwhile, without what a script does inside the server."""
    sent: list[str] = []
    with client, client.client() as last:
        last.ping()
        with client.monitor() as monitor:
            yield sent
            last.echo("that was all")
            sent += _until_the_last(monitor)


def _until_the_last(monitor: Monitor) -> Iterator[str]:
    for command in monitor.listen():
        if "that was all" in command["command"]:
            return
        if command["client_type"] != "lua":
            yield command["command"].split()[0].upper()
