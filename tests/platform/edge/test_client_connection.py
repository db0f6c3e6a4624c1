from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import AF_UNIX, SOCK_SEQPACKET, socket, socketpair

import pytest

from config.platform.edge.client_connection import ClientConnection


@pytest.fixture
def pair() -> Iterator[tuple[ClientConnection, socket]]:
    """A connection, and its client, who sees what was sent in one go as one packet."""
    here, client = socketpair(AF_UNIX, SOCK_SEQPACKET)
    with ExitStack() as both:
        made = ClientConnection(here.family, here.type, here.proto, here.detach())
        client.settimeout(0.2)
        yield both.enter_context(made), both.enter_context(client)


def packets(client: socket) -> list[bytes]:
    found = []
    try:
        while packet := client.recv(100):
            found.append(packet)
    except TimeoutError:
        pass
    return found


def test_a_head_leaves_with_the_first_part_of_its_body(
    pair: tuple[ClientConnection, socket],
) -> None:
    ours, client = pair
    for answer in (b"one", b"two"):
        ours.hold()
        for part in (b"head ", answer, b"more"):
            ours.sendall(part)
        ours.flush()
    assert packets(client) == [b"head one", b"more", b"head two", b"more"]


def test_a_head_without_a_body_leaves_at_the_end(pair: tuple[ClientConnection, socket]) -> None:
    ours, client = pair
    ours.hold()
    ours.sendall(b"head")
    assert packets(client) == []
    ours.flush()
    ours.sendall(b"not held")
    assert packets(client) == [b"head", b"not held"]


def test_a_head_leaves_before_a_file(pair: tuple[ClientConnection, socket], tmp_path: Path) -> None:
    ours, client = pair
    (tmp_path / "file").write_bytes(b"content")
    ours.hold()
    ours.sendall(b"head")
    with (tmp_path / "file").open("rb") as file:
        assert ours.sendfile(file) == len(b"content")
    assert b"".join(packets(client)) == b"headcontent"


def test_a_closed_connection_has_nothing_to_flush(pair: tuple[ClientConnection, socket]) -> None:
    ours, _ = pair
    ours.hold()
    ours.sendall(b"head")
    ours.close()
    ours.flush()
