"""HTTP/1.1 on asyncio streams: just what a chat-completions server needs, and the ways to break it.

Keep-alive, pipelining, chunked bodies both ways, `Expect: 100-continue`, and HTTP/1.0 clients
(their streams end with the connection). A client that closes its side is gone: what it asked for
ends.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from tests.standins.provider.failures import ApiError

MAX_HEAD = 64 * 1024
MAX_BODY = 64 * 1024 * 1024
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """One request; header names are in lower case, `path` has no query."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    http10: bool = False

    @property
    def keep_alive(self) -> bool:
        """Whether the client wants to use the connection again."""
        return not self.http10 and self.headers.get("connection", "").lower() != "close"


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Request | None:
    """The next request of a connection, None at its end; raises `ApiError` if it is not HTTP."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise ApiError(431, "The request's headers are too large.") from None
    start, *lines = head.decode("latin-1").strip().split("\r\n")
    try:
        method, target, version = start.split(" ")
        pairs = [line.split(":", 1) for line in lines]
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
    except ValueError:
        raise ApiError(400, "The request is not HTTP.") from None
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await _read_body(reader, headers)
    return Request(method, target.partition("?")[0], headers, body, version == "HTTP/1.0")


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    try:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await _read_chunks(reader)
        length = int(headers.get("content-length", "0"))
        _check_length(length)
        return await reader.readexactly(length)
    except ValueError:
        raise ApiError(400, "The length of the request's body cannot be read.") from None


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while length := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        _check_length(len(body) + length)
        body += (await reader.readexactly(length + 2))[:-2]
    while await reader.readuntil(b"\r\n") != b"\r\n":  # trailers
        pass
    return bytes(body)


def _check_length(length: int) -> None:
    if length < 0:
        raise ValueError
    if length > MAX_BODY:
        raise ApiError(413, "The request's body is too large.")


class Reply:
    """One response. Either `send` it whole, or `start`, any number of `part`s and `finish`."""

    def __init__(
        self, writer: asyncio.StreamWriter, request: Request | None, connection: "Connection"
    ) -> None:
        self._writer = writer
        self.connection = connection
        self._chunked = request is not None and not request.http10
        self.keep_alive = request is not None and request.keep_alive
        self.status: int | None = None
        self.streaming = False

    async def send(
        self,
        status: int,
        body: bytes,
        *,
        kind: str = JSON,
        headers: Sequence[tuple[str, str]] = (),
        only: int | None = None,
    ) -> None:
        """A whole response; of its body only the first `only` bytes, under the full length."""
        head = self._head(status, kind, [*headers, ("Content-Length", str(len(body)))])
        self._writer.write(head + body[:only])
        await self._writer.drain()

    async def send_json(
        self, status: int, value: object, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """A whole JSON response."""
        await self.send(status, dump(value), headers=headers)

    def start(self, kind: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        """The headers of a 200 whose body follows in parts."""
        self.streaming = True
        if self._chunked:
            headers = [*headers, ("Transfer-Encoding", "chunked")]
        else:
            self.keep_alive = False
        self._writer.write(self._head(200, kind, headers))

    async def part(self, data: bytes) -> None:
        """A piece of the body, as an HTTP chunk of its own; waits while the client reads slowly."""
        self._writer.write(self._framed(data))
        await self._writer.drain()

    async def finish(self, data: bytes = b"") -> None:
        """The end of the body, in one write with its last piece."""
        end = b"0\r\n\r\n" if self._chunked else b""
        self._writer.write((self._framed(data) if data else b"") + end)
        await self._writer.drain()

    def close(self) -> None:
        """Close after what was written, wherever the response stands."""
        self.keep_alive = False
        self._writer.close()

    async def reset(self) -> None:
        """Reset the connection (RST) once what was written has left."""
        self.keep_alive = False
        transport = self._writer.transport
        transport.set_write_buffer_limits(0)
        await self._writer.drain()
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        transport.abort()

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _head(self, status: int, kind: str, headers: Sequence[tuple[str, str]]) -> bytes:
        self.status = status
        try:
            reason = HTTPStatus(status).phrase
        except ValueError:
            reason = "Unknown"
        lines = [f"HTTP/1.1 {status} {reason}", f"Content-Type: {kind}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if not self.keep_alive:
            lines.append("Connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def dump(value: object) -> bytes:
    """Compact JSON in UTF-8; what cannot be encoded (a lone surrogate) becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


class Connection(asyncio.StreamReaderProtocol):
    """One client's connection, served by one task that ends with it.

    `answer` is given each request and its reply; `when_lost`, if somebody sets it, is called once.
    """

    def __init__(self, answer: "Callable[[Request, Reply], Awaitable[None]]") -> None:
        super().__init__(asyncio.StreamReader(limit=MAX_HEAD), self._begin)
        self.when_lost: Callable[[], None] | None = None
        self._answer = answer
        self._serving: asyncio.Task[None] | None = None

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving = asyncio.create_task(self._serve(reader, writer))

    def eof_received(self) -> bool:
        """Let the transport close: a client that has closed its side is not waited for."""
        super().eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End whatever the client had asked for."""
        super().connection_lost(exc)
        if self.when_lost is not None:
            self.when_lost()
        if self._serving is not None:
            self._serving.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await read_request(reader, writer):
                reply = Reply(writer, request, self)
                await self._answer(request, reply)
                if not reply.keep_alive:
                    break
        except ApiError as error:
            with suppress(ConnectionError, asyncio.CancelledError):
                await Reply(writer, None, self).send_json(error.status, error.body)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
