import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import Redis

from config.platform.concurrency import batches
from config.platform.edge.ratelimits import cache, redis_counters, servers
from config.platform.edge.ratelimits.cache import CounterCache, clear_degraded, is_degraded
from config.platform.edge.ratelimits.process_counters import ProcessCounters
from config.platform.edge.ratelimits.redis_counters import Away, RedisCounters
from tests.platform.edge.ratelimits.own_redis import OwnRedis, own_redis, round_trips
from tests.tools.folders import ROOT
from tests.tools.redis import available
from tests.waiting import eventually

needs_redis = pytest.mark.skipif(not available(), reason="no Redis for this Python")


# The bound of a wait for a condition.
SECONDS = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[OwnRedis]:
    with own_redis() as server:
        yield server


@pytest.fixture(params=["redis", "process"])
def counters(request: pytest.FixtureRequest) -> CounterCache:
    if request.param == "process":
        counters = CounterCache("", {})
    elif available():
        server: OwnRedis = request.getfixturevalue("server")
        counters = CounterCache(server.url, {})
    else:
        pytest.skip("no Redis for this Python")
    counters.clear()
    clear_degraded()
    return counters


@pytest.fixture
def shared(server: OwnRedis) -> CounterCache:
    server.start()
    counters = CounterCache(server.url, {})
    assert counters.answers()
    counters.clear()
    clear_degraded()
    return counters


@pytest.fixture
def hasty(
    shared: CounterCache, server: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CounterCache]:
    """The same counters by a client that gives up soon, as that of the service does."""
    monkeypatch.setitem(servers.TIMEOUTS, "socket_timeout", 1.0)
    cache._redis.cache_clear()
    yield CounterCache(server.url, {})
    cache._redis.cache_clear()


def counted(counters: CounterCache, key: str) -> int:
    """Counts one as django-ratelimit does."""
    return 1 if counters.add(key, 1, 60) else counters.incr(key)


def read(counters: CounterCache, key: str) -> int:
    """Reads as django-ratelimit does."""
    return 0 if counters.add(key, 0, 60) else int(counters.get(key, 0))


def test_counts_go_up_by_one(counters: CounterCache) -> None:
    assert [counted(counters, "a") for _ in range(4)] == [1, 2, 3, 4]
    assert counted(counters, "b") == 1
    assert not is_degraded()


@needs_redis
def test_counts_that_meet_share_a_round_trip(
    server: OwnRedis, shared: CounterCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATIENCE_SECONDS", "WAIT_SECONDS"):
        monkeypatch.setattr(batches, name, SECONDS)
    counters = RedisCounters(server.url)
    counters.increment("before", 1, 60)
    keys = [*"ababca"]
    with ThreadPoolExecutor(len(keys)) as pool, round_trips(server.client()) as sent:
        with server.frozen():
            meeting = [pool.submit(counters.increment, key, 1, 60) for key in keys]
            # The first is on its way.
            eventually(lambda: len(counters.waiting) == len(keys) - 1)
        assert sorted(each.result(SECONDS) for each in meeting) == [1, 1, 1, 2, 2, 3]
    assert sent == ["EVALSHA", "EVALSHA"]


def test_reading_counts_nothing(counters: CounterCache) -> None:
    assert [read(counters, "a") for _ in range(3)] == [0, 0, 0]
    counted(counters, "a")
    counted(counters, "a")
    assert [read(counters, "a") for _ in range(3)] == [2, 2, 2]
    assert counted(counters, "a") == 3


def test_incr_returns_the_result_of_add_once_and_for_its_key_only(counters: CounterCache) -> None:
    counted(counters, "a")
    assert not counters.add("a", 1, 60)
    counters.add("b", 0, 60)
    assert counters.incr("a") == 3
    assert not counters.add("a", 1, 60)
    assert counters.incr("a") == 4
    assert counters.incr("a") == 5
    assert counters.incr("a", 5) == 10
    assert not counters.add("a", 0, 60)
    assert counters.incr("a") == 11
    assert counters.get("a") == 11


def test_the_count_of_one_thread_is_not_returned_to_another(
    counters: CounterCache,
) -> None:
    counted(counters, "a")
    assert not counters.add("a", 1, 60)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(counters.incr, "a").result() == 3
    assert counters.incr("a") == 2


def test_parallel_counts_lose_nothing(counters: CounterCache) -> None:
    together = threading.Barrier(8)

    def many(_: int) -> list[int]:
        together.wait()
        return [counted(counters, "a") for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        numbers = [number for part in pool.map(many, range(8)) for number in part]
    assert sorted(numbers) == list(range(1, 401))
    assert not is_degraded()


def test_the_cache_reads_and_counts_whole_numbers(counters: CounterCache) -> None:
    assert counters.add("a", 7)
    assert counters.add("b", 8, None)
    assert counters.get("a") == 7
    assert counters.get("nothing") is None
    assert counters.get("nothing", 5) == 5
    assert counters.get_many(["a", "b", "c"]) == {"a": 7, "b": 8}
    assert counters.has_key("a")
    assert "c" not in counters
    assert counters.decr("b", 3) == 5
    assert counters.get_or_set("d", 3) == 3
    assert counters.get("d", version=2) is None
    with pytest.raises(ValueError, match="no such key"):
        counters.incr("nothing")
    counters.clear()
    assert counters.get("d") is None


@pytest.mark.parametrize("value", ["text", True, 1.5, None, [1]])
def test_anything_but_a_whole_number_is_refused(counters: CounterCache, value: Any) -> None:
    with pytest.raises(TypeError, match="whole numbers"):
        counters.add("a", value)
    with pytest.raises(ValueError, match="time to live"):
        counters.add("a", 1, 0)


def test_a_count_expires(counters: CounterCache) -> None:
    counters.add("a", 1, 1)
    counters.add("b", 1, 60)
    eventually(lambda: read(counters, "a") == 0)
    assert counted(counters, "a") == 1
    assert read(counters, "b") == 1


@needs_redis
def test_one_count_is_one_round_trip(shared: CounterCache, server: OwnRedis) -> None:
    counted(shared, "warm")
    with round_trips(server.client()) as sent:
        assert counted(shared, "a") == 1
    assert sent == ["EVALSHA"]
    with round_trips(server.client()) as sent:
        assert counted(shared, "a") == 2
    assert sent == ["EVALSHA"]
    with round_trips(server.client()) as sent:
        assert read(shared, "a") == 2
        assert read(shared, "nothing") == 0
    assert sent == ["GET", "GET"]
    with round_trips(server.client()) as sent:
        assert shared.get_many(["a", "nothing", "warm"]) == {"a": 2, "warm": 1}
        assert shared.get_many([]) == {}
    assert sent == ["MGET"]


@needs_redis
def test_a_key_keeps_the_end_of_its_first_count(shared: CounterCache, server: OwnRedis) -> None:
    shared.add("a", 1, 65)
    shared.add("a", 1, 6500)
    with server.client() as client:
        (key,) = client.keys()
        assert 0 < client.ttl(key) <= 65


@needs_redis
def test_clear_keeps_keys_of_other_prefixes(shared: CounterCache, server: OwnRedis) -> None:
    others = CounterCache(server.url, {"KEY_PREFIX": "other*[a]"})
    counted(others, "a")
    with server.client() as client:
        client.set("somebody's", "own")
        counted(shared, "a")
        shared.clear()
        assert read(shared, "a") == 0
        assert read(others, "a") == 1
        others.clear()
        assert client.keys() == ["somebody's"]


@needs_redis
def test_the_script_is_sent_again_to_a_server_that_lost_it(
    shared: CounterCache, server: OwnRedis
) -> None:
    counted(shared, "a")
    with server.client() as client:
        client.script_flush()
    assert counted(shared, "a") == 2
    assert not is_degraded()


@needs_redis
def test_the_process_counts_while_redis_is_away(
    shared: CounterCache, server: OwnRedis, caplog: pytest.LogCaptureFixture
) -> None:
    assert [counted(shared, "a") for _ in range(3)] == [1, 2, 3]
    server.kill()
    assert [counted(shared, "a") for _ in range(3)] == [1, 2, 3]
    assert read(shared, "a") == 3
    assert is_degraded()
    assert not shared.answers()

    server.start()
    with server.client() as client:
        eventually(lambda: counted(shared, "b") > 0 and bool(client.keys("*b")))
    clear_degraded()
    assert counted(shared, "c") == 1
    assert not is_degraded()
    assert shared.answers()
    assert [record.getMessage() for record in caplog.records] == ["cache_away", "cache_back"]


@needs_redis
def test_a_restart_of_redis_between_two_counts_is_no_outage(
    shared: CounterCache, server: OwnRedis
) -> None:
    counted(shared, "a")
    server.start()
    assert counted(shared, "a") == 1
    assert not is_degraded()


@needs_redis
def test_an_attempt_that_begins_while_redis_is_away_and_ends_later_leaves_no_trace(
    shared: CounterCache, server: OwnRedis
) -> None:
    server.kill()
    assert shared.take("a", limit=1, seconds=60) == 0
    server.start()
    eventually(lambda: shared.answers() is True)
    shared.give_back("a")
    server.kill()
    assert shared.take("a", limit=1, seconds=60) == 0
    shared.give_back("a")
    server.start()


@needs_redis
def test_one_caller_tries_a_redis_that_is_away_and_the_others_do_not_wait(
    hasty: CounterCache, server: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis = RedisCounters(server.url)
    tries: list[int] = []

    def count(client: Redis) -> object:
        tries.append(threading.get_ident())
        return client.incr("a")

    monkeypatch.setattr(redis_counters, "PAUSE_SECONDS", 0.0)
    with server.frozen():
        # The pause after this failure is over at once, and the next is long.
        with pytest.raises(Away):
            redis.call(count)
        monkeypatch.setattr(redis_counters, "PAUSE_SECONDS", 3600.0)
        together = threading.Barrier(10)

        def ask(_: int) -> bool:
            together.wait()
            with pytest.raises(Away):
                redis.call(count)
            return True

        with ThreadPoolExecutor(10) as pool:
            assert all(pool.map(ask, range(10)))
        assert len(tries) == 2
    assert redis.answers("probe")
    # The frozen server may have counted what was sent to it, which harms nobody.
    assert redis.increment("b", 1, 60) == 1


@needs_redis
def test_a_late_answer_is_returned_to_nobody(hasty: CounterCache, server: OwnRedis) -> None:
    hasty.add("a", 7)
    with server.frozen():
        assert hasty.get("a") is None
    assert hasty.answers()
    assert hasty.get("b") is None


@needs_redis
def test_an_error_of_redis_counts_as_an_outage(shared: CounterCache, server: OwnRedis) -> None:
    with server.client() as client:
        client.config_set("maxmemory", "1")
        client.config_set("maxmemory-policy", "noeviction")
    assert counted(shared, "a") == 1
    assert is_degraded()
    server.start()


FORKED = """
import os, sys
from config.platform.edge.ratelimits import servers
from config.platform.edge.ratelimits.cache import CounterCache

# A busy machine is no lost server.
servers.TIMEOUTS.update(socket_timeout=60, socket_connect_timeout=60)

def counted():
    counters = CounterCache(sys.argv[1], {})
    return 1 if counters.add("forked", 1, 60) else counters.incr("forked")

counted()
children = []
for _ in range(4):
    if not (child := os.fork()):
        for _ in range(50):
            counted()
        os._exit(0)
    children.append(child)
for _ in range(50):
    counted()
for child in children:
    os.waitpid(child, 0)
print(counted())
"""


@needs_redis
def test_forked_processes_share_their_counts(shared: CounterCache, server: OwnRedis) -> None:
    assert _printed(FORKED, server.url) == "252"


GREENLETS = """
from gevent import monkey
monkey.patch_all()
import sys
from gevent import spawn, wait
import redis
from config.platform.edge.ratelimits import redis_counters, servers
from config.platform.edge.ratelimits.cache import CounterCache
from config.platform.edge.ratelimits.redis_counters import CONNECTIONS

# A busy machine is no lost server.
redis_counters.SOCKET_SECONDS = 60
servers.TIMEOUTS.update(socket_timeout=60, socket_connect_timeout=60)
counters = CounterCache(sys.argv[1], {})
numbers = []

def count(_):
    numbers.append(1 if counters.add("green", 1, 60) else counters.incr("green"))

wait([spawn(count, each) for each in range(500)])
assert sorted(numbers) == list(range(1, 501)), sorted(numbers)
clients = redis.Redis.from_url(sys.argv[1]).client_list()
# One more asks this question, and one belongs to the test.
assert len(clients) <= CONNECTIONS + 2, len(clients)
print("all")
"""


@needs_redis
def test_greenlets_share_a_bounded_number_of_connections(
    shared: CounterCache, server: OwnRedis
) -> None:
    assert _printed(GREENLETS, server.url) == "all"


def _printed(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_flood_of_new_keys_evicts_its_own_numbers_only() -> None:
    counters = ProcessCounters(room=100)
    for _ in range(10):
        counters.increment("attacker", 1, 60)
    for number in range(5000):
        counters.increment(f"address {number}", 1, 60)
    assert counters.read("attacker") == 10
    assert len(counters._numbers) <= 100


def test_expired_numbers_are_evicted_first() -> None:
    counters = ProcessCounters(room=100)
    for number in range(90):
        counters.increment(f"old {number}", 5, 0)
    for number in range(10):
        counters.increment(f"living {number}", 1, 60)
    counters.increment("new", 1, 60)
    assert [counters.read(f"living {number}") for number in range(10)] == [1] * 10
    assert counters.read("new") == 1
    assert len(counters._numbers) == 11


def test_a_number_can_be_set_and_deleted(counters: CounterCache) -> None:
    counters.set("a", -7, 60)
    assert counters.get("a") == -7
    counters.set("a", 3, 60)
    assert counters.get("a") == 3
    assert counters.delete("a")
    assert not counters.delete("a")
    assert counters.get("a") is None


# A server that reads and counts nothing (LanternOps/breeze#6452).
READS_ONLY = {
    "full": ["CONFIG SET maxmemory 1", "CONFIG SET maxmemory-policy noeviction"],
    "replica": ["REPLICAOF 127.0.0.1 1"],
    "without its replicas": ["CONFIG SET min-replicas-to-write 1"],
    "without scripts": ["ACL SETUSER default -@scripting"],
    "without writes": ["ACL SETUSER default -@write"],
    "without our keys": ["ACL SETUSER default resetkeys ~other:*"],
}


@needs_redis
@pytest.mark.parametrize("commands", READS_ONLY.values(), ids=READS_ONLY.keys())
def test_a_redis_that_counts_nothing_is_away_until_it_counts_again(
    commands: list[str],
    shared: CounterCache,
    server: OwnRedis,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Every operation tries it.
    monkeypatch.setattr(redis_counters, "PAUSE_SECONDS", 0.0)
    with server.client() as client:
        for command in commands:
            client.execute_command(*command.split())
    assert shared.answers() is False
    assert (shared.add("a", 1, 60), shared.get("a"), is_degraded()) == (True, 1, True)
    # A read that succeeds shows nothing.
    shared.get("b")
    shared.delete("b")
    assert shared.answers() is False
    assert caplog.messages.count("cache_away") == 1
    assert "cache_back" not in caplog.messages
    server.start()
    assert shared.answers() is True
    clear_degraded()
    shared.add("c", 1, 60)
    assert not is_degraded()
    assert caplog.messages.count("cache_back") == 1


@needs_redis
def test_a_probe_counts_on_a_key_of_its_own_that_ends(
    shared: CounterCache, server: OwnRedis
) -> None:
    shared.clear()
    assert [shared.answers() for _ in range(3)] == [True] * 3
    with server.client() as client:
        assert client.keys() == [":1:rl:{health}"]
        assert (client.get(":1:rl:{health}"), 0 < client.ttl(":1:rl:{health}") <= 60) == ("3", True)
