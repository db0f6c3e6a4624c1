"""Numbers by key that requests are counted in: in Redis, or in this process while Redis is away.

When Redis fails, it is left alone: one caller tries it again every ``PAUSE_SECONDS`` and the others are told at
once that it is away, so that an outage costs neither requests nor time.
"""

import heapq
import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Protocol, TypeVar

from redis.exceptions import NoScriptError, RedisError

from config.redis_client import LeanRedis
from config.together import Together

log = logging.getLogger(__name__)

T = TypeVar("T")
Keys = tuple[str, ...]
Arguments = tuple[str | int, ...]

# Redis answers in well under a millisecond; a client that waits longer than this is better served without it.
SOCKET_SECONDS = 0.25
PAUSE_SECONDS = 1.5
# About 15 MB when full.
ROOM = 50_000

COUNT = """
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if count == tonumber(ARGV[1]) and tonumber(ARGV[2]) > 0 then
    redis.call('EXPIRE', KEYS[1], ARGV[2])
end
return count
"""


# KEYS: failures, attempts under way. ARGV: limit, an attempt's longest time in ms, its name.
HOLD = """
local failed = tonumber(redis.call('GET', KEYS[1]) or 0)
if failed >= tonumber(ARGV[1]) then
    return math.max(redis.call('PTTL', KEYS[1]), 1)
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[2])
if failed + redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[1]) then
    return -1
end
redis.call('ZADD', KEYS[2], now, ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 0
"""
# KEYS as above. ARGV: the attempt's name, the window in seconds or 0 where it has not failed.
SETTLE = """
redis.call('ZREM', KEYS[2], ARGV[1])
if tonumber(ARGV[2]) > 0 and redis.call('INCR', KEYS[1]) == 1 then
    redis.call('EXPIRE', KEYS[1], ARGV[2])
end
"""
# Longer than any attempt lasts: one whose process was killed is forgotten then.
HELD_SECONDS = 60
HELD, BUSY = 0, -1


class Away(Exception):
    """Redis cannot be asked just now."""


class Tally(Protocol):
    """Where numbers are kept by key. ``seconds`` is how long a new number lives; ``None`` is for good."""

    def count(self, key: str, by: int, seconds: int | None) -> int: ...
    def change(self, key: str, by: int) -> int | None: ...
    def read(self, key: str) -> int | None: ...
    def write(self, key: str, number: int, seconds: int | None) -> None: ...
    def keep(self, key: str, seconds: int | None) -> bool: ...
    def remove(self, key: str) -> bool: ...
    def clear(self, prefix: str) -> None: ...

    def hold(self, key: str, name: str, limit: int) -> int:
        """Lets an attempt begin if it may fail: as long as failures and attempts under way are fewer than ``limit``.

        ``HELD`` if it may; ``BUSY`` if that depends on attempts that are under way; otherwise the milliseconds
        until failures are forgotten.
        """

    def settle(self, key: str, name: str, *, failed_for: int) -> None:
        """Ends an attempt; one that has failed counts for ``failed_for`` seconds from the first failure on."""


class ProcessTally:
    """Numbers in this process, at most ``room`` of them.

    When it is full the expired go first and then the smallest: whoever floods it with new keys throws out
    his own ones, and a number that has grown up to a limit stays.
    """

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._numbers: dict[str, tuple[int, float]] = {}
        # Only what is under way, so there is no more of it than there are requests.
        self._held: dict[str, set[str]] = {}

    def count(self, key: str, by: int, seconds: int | None) -> int:
        with self._lock:
            number, ends = self._numbers.get(key, (0, 0.0))
            if ends <= monotonic():
                self._make_room()
                number, ends = 0, _end(seconds)
            self._numbers[key] = number + by, ends
            return number + by

    def change(self, key: str, by: int) -> int | None:
        with self._lock:
            number, ends = self._numbers.get(key, (0, 0.0))
            if ends <= monotonic():
                return None
            self._numbers[key] = number + by, ends
            return number + by

    def read(self, key: str) -> int | None:
        number, ends = self._numbers.get(key, (0, 0.0))
        return number if ends > monotonic() else None

    def write(self, key: str, number: int, seconds: int | None) -> None:
        with self._lock:
            self._make_room()
            self._numbers[key] = number, _end(seconds)

    def keep(self, key: str, seconds: int | None) -> bool:
        with self._lock:
            number, ends = self._numbers.get(key, (0, 0.0))
            if alive := ends > monotonic():
                self._numbers[key] = number, _end(seconds)
            return alive

    def remove(self, key: str) -> bool:
        with self._lock:
            return self._numbers.pop(key, (0, 0.0))[1] > monotonic()

    def clear(self, prefix: str) -> None:
        with self._lock:
            self._numbers = {
                key: kept for key, kept in self._numbers.items() if not key.startswith(prefix)
            }

    def hold(self, key: str, name: str, limit: int) -> int:
        with self._lock:
            failed, ends = self._numbers.get(key, (0, 0.0))
            left = ends - monotonic()
            if left <= 0:
                failed = 0
            if failed >= limit:
                return max(1, int(left * 1000))
            if failed + len(self._held.get(key, ())) >= limit:
                return BUSY
            self._held.setdefault(key, set()).add(name)
            return HELD

    def settle(self, key: str, name: str, *, failed_for: int) -> None:
        with self._lock:
            if names := self._held.get(key):
                names.discard(name)
                if not names:
                    del self._held[key]
        if failed_for:
            self.count(key, 1, failed_for)

    def _make_room(self) -> None:
        if len(self._numbers) < self._room:
            return
        now = monotonic()
        self._numbers = {key: kept for key, kept in self._numbers.items() if kept[1] > now}
        # A tenth at a time, so that the search is paid for by many newcomers.
        if (over := len(self._numbers) - self._room * 9 // 10) > 0:
            for key in heapq.nsmallest(over, self._numbers, key=self._numbers.__getitem__):
                del self._numbers[key]


class RedisTally:
    """Numbers in Redis. Every method raises ``Away`` instead of waiting for a Redis that has just failed."""

    def __init__(self, location: str) -> None:
        self._client = LeanRedis(location, seconds=SOCKET_SECONDS)
        self._count, self._hold, self._settle = map(self._together, (COUNT, HOLD, SETTLE))
        self._lock = threading.Lock()
        self._away = False
        self._next_try = 0.0

    def count(self, key: str, by: int, seconds: int | None) -> int:
        return self._ask(lambda: int(self._count(((key,), (by, seconds or 0)))))

    def change(self, key: str, by: int) -> int | None:
        return self._ask(
            lambda: int(self._client.incrby(key, by)) if self._client.exists(key) else None
        )

    def read(self, key: str) -> int | None:
        return self._ask(lambda: None if (number := self._client.get(key)) is None else int(number))

    def write(self, key: str, number: int, seconds: int | None) -> None:
        self._ask(lambda: self._client.set(key, number, ex=seconds))

    def keep(self, key: str, seconds: int | None) -> bool:
        if seconds is None:
            return self._ask(
                lambda: bool(self._client.exists(key) and (self._client.persist(key) or True))
            )
        return self._ask(lambda: bool(self._client.expire(key, seconds)))

    def remove(self, key: str) -> bool:
        return self._ask(lambda: bool(self._client.delete(key)))

    def clear(self, prefix: str) -> None:
        # Never the whole database: others may keep something in it.
        pattern = prefix.translate({ord(sign): f"\\{sign}" for sign in "*?[]\\"}) + "*"
        self._ask(
            lambda: [self._client.delete(key) for key in self._client.scan_iter(pattern, 1000)]
        )

    def hold(self, key: str, name: str, limit: int) -> int:
        keys, longest = (key, f"{key}:held"), int(HELD_SECONDS * 1000)
        return self._ask(lambda: int(self._hold((keys, (limit, longest, name)))))

    def settle(self, key: str, name: str, *, failed_for: int) -> None:
        keys = (key, f"{key}:held")
        self._ask(lambda: self._settle((keys, (name, failed_for))))

    def answers(self) -> bool:
        """Whether Redis answers now, however long it has been away."""
        try:
            self._tried(self._client.ping)
        except Away:
            return False
        return True

    def _together(self, text: str) -> Together[tuple[Keys, Arguments], Any]:
        """A script for what requests ask all the time, without what the library's scripts weigh first."""
        script = self._client.register_script(text)

        def ask(wanted: Sequence[tuple[Keys, Arguments]]) -> list[Any]:
            commands = [("EVALSHA", script.sha, len(keys), *keys, *given) for keys, given in wanted]
            answers = self._client.execute_all(commands)
            lost = [
                number for number, each in enumerate(answers) if isinstance(each, NoScriptError)
            ]
            if lost:
                # What a Redis that has begun anew refused, it has not done.
                again = [("SCRIPT", "LOAD", text), *(commands[number] for number in lost)]
                _, *others = self._client.execute_all(again)
                for number, answer in zip(lost, others, strict=True):
                    answers[number] = answer
            return answers

        # A failure is everyone's: where Redis is away, it is not asked for each of them.
        return Together(ask, undone=lambda _: False)

    def _ask(self, command: Callable[[], T]) -> T:
        if self._away:
            with self._lock:
                if monotonic() < self._next_try:
                    raise Away
                # Whoever moves this on is the one who tries; the others go on without Redis meanwhile.
                self._next_try = monotonic() + PAUSE_SECONDS
        return self._tried(command)

    def _tried(self, command: Callable[[], T]) -> T:
        try:
            answer = command()
        except (RedisError, OSError) as error:
            self._next_try = monotonic() + PAUSE_SECONDS
            # The other idle connections may be as dead as this one, and silent about it.
            self._client.disconnect_idle()
            self._note(away=True)
            raise Away from error
        self._note(away=False)
        return answer

    def _note(self, *, away: bool) -> None:
        if away == self._away:
            return
        self._away = away
        if away:
            log.warning("cache_away")
        else:
            log.warning("cache_back")


def _end(seconds: int | None) -> float:
    return float("inf") if seconds is None else monotonic() + seconds
