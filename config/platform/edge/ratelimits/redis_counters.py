"""Counters in Redis, for all threads of a process.

After a failure, one caller retries Redis every ``PAUSE_SECONDS`` and the others continue without it, so that an outage
causes neither errors nor delays.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from redis.exceptions import RedisClusterException, RedisError

from config.platform.concurrency.batches import Batches, Execution
from config.platform.edge.ratelimits.servers import CLUSTER, SOCKET_SECONDS, client_of

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_SECONDS = 1.5
CONNECTIONS = 32
# The count of a probe expires.
PROBE_SECONDS = 60

# ARGV: for each key the number to add, and the lifetime of a new count in seconds, or 0.
COUNT = """
local counts = {}
for place, key in ipairs(KEYS) do
    local number, seconds = tonumber(ARGV[2 * place - 1]), tonumber(ARGV[2 * place])
    counts[place] = redis.call('INCRBY', key, number)
    if counts[place] == number and seconds > 0 then
        redis.call('EXPIRE', key, seconds)
    end
end
return counts
"""
# A count that has expired meanwhile does not restart below zero.
GIVE_BACK = """
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('DECR', KEYS[1]) <= 0 then
    redis.call('DEL', KEYS[1])
end
"""


class Away(Exception):
    """Redis does not answer at the moment."""


class _Count(Execution):
    """One count: its key, and its result once it has run."""

    __slots__ = ("by", "key", "number", "seconds")

    def __init__(self, key: str, by: int, seconds: int | None) -> None:
        super().__init__(Away())
        self.key, self.by, self.seconds, self.number = key, by, seconds or 0, 0


class RedisCounters(Batches[_Count]):
    """The counters at one address; each operation is one round trip and raises ``Away`` when Redis fails.

    Concurrent counts of this process share a round trip, most of whose cost is waking the receiver. A cluster keeps
    their keys apart.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._client: Any = None
        self._scripts: dict[str, Any] = {}
        # A burst waits briefly instead of opening a thousand connections.
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        self._turn, self._making = threading.Lock(), threading.Lock()
        self._away = False
        self._next_try = 0.0

    def increment(self, key: str, by: int, seconds: int | None) -> int:
        count = _Count(key, by, seconds)
        if self._address.startswith(CLUSTER):
            self.run([count], None)
        else:
            self.execute(count)
        if count.error is not None:
            raise Away
        return count.number

    def run(self, batch: list[_Count], resource: None) -> None:
        arguments = [number for each in batch for number in (each.by, each.seconds)]
        with suppress(Away):
            numbers = self._count([each.key for each in batch], arguments)
            for each, number in zip(batch, numbers, strict=True):
                each.number, each.error = number, None

    def give_back(self, key: str) -> None:
        """Decrements a count whose window has not ended."""
        self.call(lambda client: self._script(client, GIVE_BACK)([key], [], client))

    def milliseconds_left(self, key: str) -> int:
        return max(int(self.call(lambda client: client.pttl(key))), 1)

    def read(self, key: str) -> int | None:
        number = self.call(lambda client: client.get(key))
        return None if number is None else int(number)

    def read_many(self, keys: list[str]) -> list[int | None]:
        numbers = self.call(lambda client: client.mget(keys))
        return [None if number is None else int(number) for number in numbers]

    def set(self, key: str, number: int, seconds: int | None) -> None:
        self.call(lambda client: client.set(key, number, ex=seconds))

    def delete(self, key: str) -> bool:
        return bool(self.call(lambda client: client.delete(key)))

    def clear(self, prefix: str) -> None:
        # Never flushes the whole database, which other services may share.
        pattern = prefix.translate({ord(sign): f"\\{sign}" for sign in "*?[]\\"}) + "*"
        self.call(lambda client: [client.delete(key) for key in client.scan_iter(pattern, 1000)])

    def answers(self, key: str) -> bool:
        """Returns whether Redis counts now, even while it is considered unavailable. ``key`` is for this only.

        A Redis that is full, a replica, or without rights for this user can be read but does not count.
        """
        try:
            self._try(
                lambda client: self._script(client, COUNT)([key], [1, PROBE_SECONDS], client),
                counts=True,
            )
        except Away:
            return False
        return True

    def call(self, operation: Callable[[Any], T], *, counts: bool = False) -> T:
        """Runs an operation on the client, unless Redis is unavailable and another caller retries it.

        Only an operation that ``counts`` proves that Redis has recovered.
        """
        with self._turn:
            if self._away and monotonic() < self._next_try:
                raise Away
            self._next_try = monotonic() + PAUSE_SECONDS
        return self._try(operation, counts=counts)

    def _count(self, keys: list[str], arguments: list[int]) -> Any:
        return self.call(
            lambda client: self._script(client, COUNT)(keys, arguments, client), counts=True
        )

    def _script(self, client: Any, text: str) -> Any:
        """Returns a script, whose text is sent only to a server that has not cached it."""
        if text not in self._scripts:
            self._scripts[text] = client.register_script(text)
        return self._scripts[text]

    def _try(self, operation: Callable[[Any], T], *, counts: bool) -> T:
        if not self._room.acquire(timeout=SOCKET_SECONDS):
            raise Away
        try:
            with self._making:
                # A cluster's client connects when it is created.
                client = self._client = self._client or client_of(self._address)
            result = operation(client)
        # The last is no subclass of RedisError.
        except (RedisError, OSError, RedisClusterException) as error:
            # The idle connections may be broken too, and the nodes of a cluster may have changed.
            self._client = None
            self._note(away=True)
            raise Away from error
        finally:
            self._room.release()
        if counts:
            self._note(away=False)
        return result

    def _note(self, *, away: bool) -> None:
        if away != self._away:
            self._away = away
            log.warning("cache_away" if away else "cache_back")
