"""A stand-in model provider that costs next to nothing: ``python -m tests.bench.provider PORT [CHUNKS SECONDS]``.

It checks nothing and says always the same: one-shot answers at once, streams of so many chunks (50), one every so many
seconds (0.1). The text of a chunk is the moment it was due, in seconds of the machine's monotonic clock with six
places, so that whoever reads it knows how late it comes. ``GET /__stats`` counts.
"""

import argparse
import asyncio
import gc
import json
import re
import resource
import sys
from typing import Any

HOST = "127.0.0.1"
CHUNKS, SECONDS = 50, 0.1
USAGE = {"prompt_tokens": 12, "completion_tokens": CHUNKS, "total_tokens": 12 + CHUNKS}
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
STREAM = re.compile(rb'"stream": ?true')
_KIND = {"id": "chatcmpl-bench", "created": 1_700_000_000, "model": "stand-in-small"}
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_PLACE = "0000000000.000000"


def _json_answer(content: Any) -> bytes:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def _framed(data: str) -> bytes:
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


def _chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
    kind = {**_KIND, "object": "chat.completion.chunk"}
    return _framed(json.dumps({**kind, "choices": choices, **more}))


def _choice(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


_MESSAGE = {
    "role": "assistant",
    "content": "This is what a model has to say about that, in a few words.",
}
ONE_SHOT = _json_answer(
    {
        **_KIND,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}],
        "usage": USAGE,
    }
)
_BEFORE, _AFTER = _chunk([_choice({"content": _PLACE})]).split(_PLACE.encode())
LAST = _chunk([_choice({}, "stop")]) + _chunk([], usage=USAGE) + _framed("[DONE]") + b"0\r\n\r\n"


class Tally:
    """What all callers together had."""

    one_shots = started = finished = left = 0

    def told(self) -> dict[str, int]:
        """``left`` are streams whose caller went before their end."""
        names = ("one_shots", "started", "finished", "left")
        return {name: getattr(self, name) for name in names}


class Caller(asyncio.Protocol):
    """One connection, a request after the other."""

    def __init__(self, tally: Tally, chunks: int, seconds: float) -> None:
        self._tally, self._chunks, self._seconds = tally, chunks, seconds
        self._loop = asyncio.get_running_loop()
        self._waiting = b""
        self._next: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._next is not None:
            self._next.cancel()
            self._tally.left += 1

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        while (end := self._waiting.find(b"\r\n\r\n")) >= 0:
            length = LENGTH.search(self._waiting, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._waiting) < whole:
                return
            asked, self._waiting = self._waiting[:whole], self._waiting[whole:]
            self._answer(asked)

    def _answer(self, asked: bytes) -> None:
        if asked.startswith(b"GET /__stats"):
            self._transport.write(_json_answer(self._tally.told()))
        elif STREAM.search(asked):
            self._tally.started += 1
            self._due = self._loop.time()
            self._said = 0
            self._say(_STREAM_HEAD)
        else:
            self._tally.one_shots += 1
            self._transport.write(ONE_SHOT)

    def _say(self, before: bytes = b"") -> None:
        self._transport.write(b"%s%s%017.6f%s" % (before, _BEFORE, self._due, _AFTER))
        self._said += 1
        # By the clock and not by the last one, so that a late chunk does not make all others late.
        self._due += self._seconds
        go_on = self._say if self._said < self._chunks else self._end
        self._next = self._loop.call_at(self._due, go_on)

    def _end(self) -> None:
        self._next = None
        self._tally.finished += 1
        self._transport.write(LAST)


async def serve(port: int, chunks: int, seconds: float) -> None:
    tally, loop = Tally(), asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Caller(tally, chunks, seconds), HOST, port, backlog=4096
    )
    gc.freeze()
    await server.serve_forever()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.provider", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("chunks", type=int, nargs="?", default=CHUNKS)
    parser.add_argument("seconds", type=float, nargs="?", default=SECONDS)
    options = parser.parse_args(arguments)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(serve(options.port, options.chunks, options.seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
