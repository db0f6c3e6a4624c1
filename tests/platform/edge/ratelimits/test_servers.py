"""Counting in a real cluster and a real Sentinel set, whose servers are killed."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis
from pytest_django import Settings

from config.platform.edge.ratelimits.cache import CounterCache, clear_degraded, is_degraded
from config.platform.edge.ratelimits.failed_logins import attempt
from config.platform.edge.ratelimits.limits import RateLimited
from tests.platform.edge.ratelimits.nodes import HOST, Server, killed_at_last, running_cluster
from tests.tools.ports import free
from tests.tools.redis import available
from tests.waiting import eventually

# Starting and losing servers takes seconds.
pytestmark = [pytest.mark.wire, pytest.mark.skipif(not available(), reason="no Redis here")]


def counted(cache: CounterCache, key: str) -> int:
    """Counts one as django-ratelimit does."""
    return 1 if cache.add(key, 1, 60) else cache.incr(key)


def counts_together(cache: CounterCache, key: str) -> bool:
    """Returns whether a count reaches the servers."""
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
    with running_cluster(tmp_path) as servers:
        yield servers


def test_a_cluster_counts_every_key_and_its_loss_is_an_outage_like_any_other(
    cluster: list[Server], settings: Settings, limit_of_failures: int
) -> None:
    nodes = ",".join(f"{HOST}:{server.port}" for server in cluster[:2])
    location = f"redis+cluster://{nodes}"
    settings.CACHES = {
        "default": {
            "BACKEND": "config.platform.edge.ratelimits.cache.CounterCache",
            "LOCATION": location,
        }
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
    # And the probe's.
    assert sum(sizes) == 63

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
                "sentinel down-after-milliseconds main 5000",
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
        "default": {
            "BACKEND": "config.platform.edge.ratelimits.cache.CounterCache",
            "LOCATION": location,
        }
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
