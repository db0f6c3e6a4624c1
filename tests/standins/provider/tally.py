"""What the stand-in counted since it started or was reset, for tests to read."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.standins.provider.members import received_limit

COUNTED = (
    "requests",
    "streams_finished",
    "streams_faulted",
    "streams_aborted",
    "calls_aborted",
    "connections",
)
OPEN = ("requests_open", "streams_open", "connections_open")


class Outcome:
    """How a stream ended; aborted by its client unless told otherwise."""

    def __init__(self) -> None:
        self.name = "streams_aborted"

    def finished(self) -> None:
        """It sent all it meant to, whatever shape a directive gave it."""
        self.name = "streams_finished"

    def faulted(self) -> None:
        """A fault ended it."""
        self.name = "streams_faulted"


class Tally:
    """Counters of chat-completions requests and of connections.

    `requests` counts every POST, also refused ones, `responses` the status of each response begun,
    `calls_aborted` the clients that left before the end of a one-shot answer or before the headers
    of a stream. `connections` counts those that sent a request to anything but `/__...`.
    `requests_open`, `streams_open` and `connections_open` are the present and survive a reset.
    """

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()
        self.reset()

    def reset(self) -> None:
        """Forget everything but what is open now."""
        self.counted: Counter[str] = Counter()
        self.responses: Counter[int] = Counter()
        self.body: dict[str, Any] | None = None
        self.header_names: list[str] = []

    def received(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        """Keep what an authorised request sent: its body, and of its headers the names alone."""
        self.body = body
        self.header_names = sorted(headers)

    def connected(self) -> None:
        """A connection has sent its first request."""
        self.counted["connections"] += 1
        self.open["connections_open"] += 1

    def disconnected(self) -> None:
        """A connection ended."""
        self.open["connections_open"] -= 1

    @contextmanager
    def request(self) -> Iterator[None]:
        """Around one chat-completions request."""
        self.counted["requests"] += 1
        self.open["requests_open"] += 1
        try:
            yield
        finally:
            self.open["requests_open"] -= 1

    @contextmanager
    def stream(self) -> Iterator[Outcome]:
        """Around one stream, from its headers to its end."""
        outcome = Outcome()
        self.open["streams_open"] += 1
        try:
            yield outcome
        finally:
            self.open["streams_open"] -= 1
            self.counted[outcome.name] += 1

    def report(self) -> dict[str, Any]:
        """The JSON of `/__stats`."""
        return {
            **{name: self.counted[name] for name in COUNTED},
            **{name: self.open[name] for name in OPEN},
            "responses": {str(status): times for status, times in sorted(self.responses.items())},
            "last": self._last(),
        }

    def _last(self) -> dict[str, Any] | None:
        if self.body is None:
            return None
        return {
            "model": self.body.get("model"),
            "output_limit": received_limit(self.body),
            "stream": self.body.get("stream"),
            "body_keys": sorted(self.body),
            "header_names": self.header_names,
        }
