"""Many streams at once, read by one process that costs little: what their callers would have seen.

``python -m tests.bench.crowd_of_streams`` reads a `Crowd` as JSON from its standard input and prints a `Seen`.

Every stream has a connection of its own, on one epoll. Each chunk of the provider carries the moment at which it was
due by the clock that all processes of a host share (`MARK`), so a delay is the whole way from there to here.
"""

import json
import re
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from tests.tools.folders import ROOT

# A mark in the text of a chunk: when it was due, in seconds on the monotonic clock.
MARK = re.compile(rb'"(\d{10}\.\d{6})"')
# The longest text that may be split between two reads: a mark, or the end of the stream.
LONGEST_MARK = 64
DONE = b"data: [DONE]"
LAST_CHUNK = b"\r\n0\r\n\r\n"
OK = b"HTTP/1.1 200"
READ = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """``streams`` calls of ``body``, begun evenly over ``ramp`` seconds, the tokens taken in turn.

    Each is asked ``times`` times, one after another. A whole answer has ``chunks`` marks and, at its end,
    ``last``. What is not over ``patience`` seconds after the last began has failed.
    """

    host: str
    port: int
    path: str
    body: str
    tokens: Sequence[str]
    streams: int
    chunks: int
    ramp: float
    patience: float = 60.0
    times: int = 1
    last: str = DONE.decode()


@dataclass(kw_only=True)
class Seen:
    """The outcomes of a crowd. Milliseconds; ``seconds`` from the first beginning to the last end.

    ``end`` is the wait from the last text of a stream to its end; ``unanswered`` counts refusals without
    ``Retry-After``.
    """

    done: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    chunks: int = 0
    most_at_once: int = 0
    seconds: float = 0.0
    # Of this process, per chunk, in microseconds of CPU.
    own_cpu: float = 0.0
    first_p50: float = 0.0
    first_p99: float = 0.0
    delay_p50: float = 0.0
    delay_p99: float = 0.0
    delay_most: float = 0.0
    end_p50: float = 0.0
    end_p99: float = 0.0
    unanswered: int = 0


class _Stream:
    __slots__ = (
        "began",
        "fd",
        "first",
        "has_last",
        "last",
        "left",
        "marks",
        "number",
        "over",
        "request",
        "sock",
        "tail",
    )

    def __init__(self, sock: socket.socket, request: bytes, *, number: int, left: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.request = request
        self.began = time.monotonic()
        # The place of its caller, and how often that asks again.
        self.number, self.left = number, left
        self.first = self.last = 0.0
        self.marks = 0
        # Set once the last event has come.
        self.has_last = False
        self.tail = b""
        self.over: str | None = None


class _Reading:
    """All streams of a crowd on one epoll."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._poll = select.epoll()
        self._open: dict[int, _Stream] = {}
        self._firsts: list[float] = []
        self._delays: list[float] = []
        self._waits: list[float] = []
        self._unanswered = 0
        self._ends: Counter[str] = Counter()
        self._requests = [_request(crowd, token) for token in crowd.tokens]
        self._last = crowd.last.encode()
        self._most = 0

    def run(self) -> Seen:
        crowd, begun, cpu = self._crowd, 0, time.process_time()
        start = time.monotonic()
        while begun < crowd.streams or self._open:
            now = time.monotonic()
            while begun < crowd.streams and now >= start + crowd.ramp * begun / crowd.streams:
                self._begin(begun, crowd.times - 1)
                begun += 1
            if now > start + crowd.ramp + crowd.times * crowd.patience:
                for stream in list(self._open.values()):
                    self._end(stream, "stalled")
                break
            self._wait(
                start + crowd.ramp * begun / crowd.streams if begun < crowd.streams else now + 1
            )
        seen = self._seen(time.monotonic() - start)
        seen.own_cpu = (time.process_time() - cpu) * 1e6 / max(1, seen.chunks)
        return seen

    def _begin(self, number: int, left: int) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = self._requests[number % len(self._requests)]
        stream = _Stream(sock, request, number=number, left=left)
        sock.connect_ex((self._crowd.host, self._crowd.port))
        self._open[stream.fd] = stream
        self._most = max(self._most, len(self._open))
        self._poll.register(stream.fd, select.EPOLLOUT)

    def _wait(self, until: float) -> None:
        for fd, _ in self._poll.poll(max(0.0, until - time.monotonic())):
            stream = self._open[fd]
            try:
                if stream.request:
                    self._send(stream)
                else:
                    self._read(stream)
            except OSError as error:
                stream.over = type(error).__name__
            if stream.over is not None:
                self._end(stream, stream.over)

    def _send(self, stream: _Stream) -> None:
        stream.request = stream.request[stream.sock.send(stream.request) :]
        if not stream.request:
            self._poll.modify(stream.fd, select.EPOLLIN)

    def _read(self, stream: _Stream) -> None:
        data = stream.sock.recv(READ)
        now = time.monotonic()
        kept = len(stream.tail)
        text = stream.tail + data
        for mark in MARK.finditer(text):
            if mark.end() <= kept:
                continue
            self._delays.append(now - float(mark[1]))
            stream.marks, stream.last = stream.marks + 1, now
            if not stream.first:
                stream.first = now
                self._firsts.append(now - stream.began)
        stream.has_last |= self._last in text
        if not stream.marks and not stream.tail and not data.startswith(OK):
            stream.over = "refused " + data[9:12].decode("ascii", "replace") if data else "closed"
            self._unanswered += b"\r\nretry-after:" not in data.lower()
        elif text.endswith(LAST_CHUNK) or not data:
            is_whole = stream.has_last and stream.marks == self._crowd.chunks
            stream.over = "" if is_whole else "cut short"
            if is_whole:
                self._waits.append(now - stream.last)
        stream.tail = text[-LONGEST_MARK:]

    def _end(self, stream: _Stream, how: str) -> None:
        self._ends[how] += 1
        del self._open[stream.fd]
        self._poll.unregister(stream.fd)
        stream.sock.close()
        if stream.left and how != "stalled":
            self._begin(stream.number, stream.left - 1)

    def _seen(self, seconds: float) -> Seen:
        return Seen(
            done=self._ends.pop("", 0),
            failures=dict(self._ends),
            chunks=len(self._delays),
            most_at_once=self._most,
            seconds=seconds,
            first_p50=percentile(self._firsts, 0.5),
            first_p99=percentile(self._firsts, 0.99),
            delay_p50=percentile(self._delays, 0.5),
            delay_p99=percentile(self._delays, 0.99),
            delay_most=percentile(self._delays, 1.0),
            end_p50=percentile(self._waits, 0.5),
            end_p99=percentile(self._waits, 0.99),
            unanswered=self._unanswered,
        )


def _request(crowd: Crowd, token: str) -> bytes:
    body = crowd.body.encode()
    lines = [
        f"POST {crowd.path} HTTP/1.1",
        f"Host: {crowd.host}:{crowd.port}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def percentile(values: list[float], share: float) -> float:
    """Returns the value below which this share of the values lies, in milliseconds; they are in seconds."""
    if not values:
        return 0.0
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] * 1000


def read(crowd: Crowd) -> Seen:
    """Begins all streams of a crowd and reads them to their ends."""
    return _Reading(crowd).run()


def read_apart(crowd: Crowd) -> Seen:
    """Reads a crowd in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.crowd_of_streams"],
        cwd=ROOT,
        input=json.dumps(asdict(crowd)),
        capture_output=True,
        text=True,
        timeout=crowd.ramp + 2 * crowd.times * crowd.patience,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Seen(**json.loads(done.stdout))


if __name__ == "__main__":
    print(json.dumps(asdict(read(Crowd(**json.load(sys.stdin))))))
