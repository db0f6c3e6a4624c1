"""Reading the stand-in's answers byte by byte, and plain requests to it."""

import json
import socket
from dataclasses import dataclass
from typing import Any

import requests

from tests.standins.provider_process import DEADLINE, Provider

KEY = "test-key"


def ask(
    text: str, *, model: str = "stand-in-small", stream: bool = False, **members: Any
) -> dict[str, Any]:
    """A request's body with one user message."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], **members}
    return {**body, "stream": True} if stream else body


def post(provider: Provider, body: Any, *, key: str = KEY) -> requests.Response:
    """One POST of `body` as JSON, on a connection of its own that is closed with the answer read."""
    with requests.Session() as session:
        session.trust_env = False
        response = session.post(
            f"{provider.base_url}/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {key}"},
            timeout=DEADLINE,
        )
        # Even a closed session leaves the socket open for as long as the response lives.
        response.close()
        return response


def events(provider: Provider, text: str, **members: Any) -> list[dict[str, Any]]:
    """The JSON events of a stream that ends as it should, without [DONE]."""
    response = post(provider, ask(text, stream=True, **members))
    assert response.status_code == requests.codes.ok, response.text
    *frames, done, rest = response.content.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all(frame.startswith("data: ") for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def deltas(chunks: list[dict[str, Any]]) -> list[str]:
    """The texts of all content deltas after the role's."""
    contents = [choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"]]
    return [content for content in contents if content]


def connect(provider: Provider) -> socket.socket:
    """A connection, to be closed by the caller."""
    return socket.create_connection((provider.host, provider.port), timeout=DEADLINE)


def request_bytes(body: dict[str, Any], *, version: str = "HTTP/1.1", headers: str = "") -> bytes:
    """A request as bytes."""
    raw = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions {version}\r\nHost: stand-in\r\n"
        f"Authorization: Bearer {KEY}\r\nContent-Length: {len(raw)}\r\n{headers}\r\n"
    )
    return head.encode() + raw


@dataclass(frozen=True)
class Received:
    """Everything a connection brought until it ended, and how it ended."""

    head: str
    chunks: list[bytes]  # HTTP chunks, without framing; empty for another kind of body
    body: bytes
    reset: bool
    complete: bool  # whether the last HTTP chunk came


def receive(provider: Provider, body: dict[str, Any], **options: str) -> Received:
    """Send one request and read until the other side ends the connection."""
    with connect(provider) as client:
        client.sendall(request_bytes(body, **options))
        data, reset = read_to_the_end(client)
    head, _, rest = data.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return Received(head.decode(), [], rest, reset, complete=False)
    chunks: list[bytes] = []
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            return Received(head.decode(), chunks, b"".join(chunks), reset, complete=True)
        chunks.append(rest[:length])
        rest = rest[length + 2 :]
    return Received(head.decode(), chunks, b"".join(chunks), reset, complete=False)


def read_to_the_end(client: socket.socket) -> tuple[bytes, bool]:
    """All bytes until the end of a connection, and whether that was a reset."""
    data = bytearray()
    while True:
        try:
            received = client.recv(65536)
        except ConnectionResetError:
            return bytes(data), True
        if not received:
            return bytes(data), False
        data += received


def read_until(client: socket.socket, mark: bytes, times: int = 1) -> bytes:
    """All bytes until `mark` has come `times` times."""
    data = bytearray()
    while data.count(mark) < times:
        received = client.recv(65536)
        assert received, f"ended before {mark!r}: {bytes(data)!r}"
        data += received
    return bytes(data)
