"""What goes out on a connection, packet by packet."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http.errors import InvalidResponseHeader, InvalidResponseHeaderName
from gunicorn.http.parser import RequestParser
from gunicorn.http.wsgi import FileWrapper

from config.sending import Answer, Incoming

BODY = b'{"status": "active"}'


class Wire:
    """The socket of a client: what each system call sends. It takes at most ``room`` bytes of a ``send``."""

    def __init__(self, room: int = 1 << 20) -> None:
        self.packets: list[bytes] = []
        self._room = room

    def send(self, data: bytes) -> int:
        self.packets.append(bytes(data[: self._room]))
        return len(self.packets[-1])

    def sendall(self, data: bytes) -> None:
        self.packets.append(bytes(data))

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> None:
        self.packets.append(file.read(count))


def asked(method: str = "GET", version: str = "1.1", more: str = "") -> Any:
    raw = f"{method} /v1/license/status HTTP/{version}\r\nHost: localhost\r\n{more}\r\n"
    return next(RequestParser(Config(), iter([raw.encode()]), ("192.0.2.1", 4711)))


def sent(
    chunks: Iterable[bytes],
    *,
    status: str = "200 OK",
    request: Any = None,
    wire: Wire | None = None,
    **headers: str,
) -> list[bytes]:
    """The packets of an answer of these chunks."""
    to = wire or Wire()
    answer = Answer(request or asked(), to, Config())
    answer.start_response(
        status, [(name.replace("_", "-"), each) for name, each in headers.items()]
    )
    if isinstance(chunks, FileWrapper):
        answer.write_file(chunks)
    else:
        for chunk in chunks:
            answer.write(chunk)
    answer.close()
    return to.packets


def test_head_and_body_go_out_as_one() -> None:
    (packet,) = sent([BODY], Content_Length=str(len(BODY)), Content_Type="application/json")

    head, _, body = packet.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert body == BODY
    assert lines[:2] == ["HTTP/1.1 200 OK", "Server: gunicorn"]
    assert lines[2].startswith("Date: ")
    assert lines[2].endswith(" GMT")
    assert lines[3:] == [
        "Connection: keep-alive",
        f"Content-Length: {len(BODY)}",
        "Content-Type: application/json",
    ]


def test_each_chunk_of_a_stream_goes_out_as_one_and_the_first_with_the_head() -> None:
    first, second, end = sent([b"one", b"", b"second chunk"], Content_Type="text/event-stream")

    assert b"\r\nTransfer-Encoding: chunked\r\n" in first
    assert first.endswith(b"\r\n\r\n3\r\none\r\n")
    assert second == b"C\r\nsecond chunk\r\n"
    assert end == b"0\r\n\r\n"


def test_a_stream_to_an_old_client_is_ended_by_its_end() -> None:
    first, second = sent([b"one", b"two"], request=asked(version="1.0"))

    assert b"\r\nConnection: close\r\n" in first
    assert b"Transfer-Encoding" not in first
    assert first.endswith(b"\r\n\r\none")
    assert second == b"two"


@pytest.mark.parametrize(
    ("method", "status", "headers"),
    [
        ("HEAD", "200 OK", {"Content_Length": str(len(BODY))}),
        ("GET", "304 Not Modified", {"ETag": '"a"'}),
        ("GET", "204 No Content", {}),
        ("GET", "200 OK", {"Content_Length": "0"}),
    ],
)
@pytest.mark.parametrize("chunks", [[], [b""], [BODY]])
def test_an_answer_without_a_body_is_its_head(
    method: str,
    status: str,
    headers: dict[str, str],
    chunks: list[bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (packet,) = sent(chunks, status=status, request=asked(method), **headers)

    assert packet.endswith(b"\r\n\r\n")
    assert packet.count(b"\r\n\r\n") == 1
    assert b"Connection: keep-alive" in packet
    assert caplog.text == ""


def test_no_more_is_sent_than_was_promised() -> None:
    (packet,) = sent([b"12345", b"678"], Content_Length="4")

    assert packet.endswith(b"\r\n\r\n1234")


def test_what_the_system_does_not_take_at_once_follows() -> None:
    body = b"x" * 1000

    packets = sent([body], wire=Wire(room=300), Content_Length="1000")

    assert len(packets) == 2
    assert b"".join(packets).endswith(b"\r\n\r\n" + body)


def test_a_file_is_sent_by_the_system_after_its_head(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(BODY)

    with (tmp_path / "file").open("rb") as file:
        head, body = sent(FileWrapper(file), Content_Length=str(len(BODY)))

    assert head.endswith(b"\r\n\r\n")
    assert body == BODY


def test_what_only_looks_like_a_file_goes_out_with_its_head() -> None:
    (packet,) = sent(FileWrapper(io.BytesIO(BODY)), Content_Length=str(len(BODY)))

    assert packet.endswith(b"\r\n\r\n" + BODY)


def test_no_header_of_ours_says_what_the_server_says() -> None:
    (packet,) = sent(
        [BODY], Content_Length=str(len(BODY)), connection="close", Transfer_Encoding="gzip"
    )

    assert packet.count(b"onnection:") == 1
    assert b"Connection: keep-alive" in packet
    assert b"gzip" not in packet


@pytest.mark.parametrize("name", ["", "X Y", "X:", "X\r\nY", "X\u00e9"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    for _ in range(2):
        with pytest.raises(InvalidResponseHeaderName):
            Answer(asked(), Wire(), Config()).start_response("200 OK", [(name, "1")])


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b=c", "a\nb", "\0", "\u20ac"])
def test_a_value_that_would_be_more_than_one_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(InvalidResponseHeader) as refused:
        Answer(asked(), Wire(), Config()).start_response("200 OK", [("X-Name", value)])

    assert str(refused.value).endswith(": 'X-Name'")


def test_a_client_that_wants_to_close_is_told_so() -> None:
    (packet,) = sent([BODY], request=asked(more="Connection: close\r\n"), Content_Length="20")

    assert b"\r\nConnection: close\r\n" in packet


@pytest.mark.parametrize("peer", [("127.0.0.1", 1), ("::1", 1), "", b""])
def test_nobody_is_believed_by_the_server(peer: Any) -> None:
    raw = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-Proto: https\r\n\r\n"
    config = Config()
    config.set("forwarded_allow_ips", "")
    config.set("forwarder_headers", "")
    config.set("secure_scheme_headers", {})
    unreader = RequestParser(config, iter([raw]), peer).unreader

    request = Incoming(config, unreader, peer)

    assert request.scheme == "http"


def test_what_has_not_changed_says_no_length_and_keeps_its_connection() -> None:
    (packet,) = sent([], status="304 Not Modified", Content_Length="0", ETag='"a"')
    assert packet.endswith(b'Connection: keep-alive\r\nETag: "a"\r\n\r\n')
