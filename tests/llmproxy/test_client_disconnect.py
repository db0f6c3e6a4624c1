"""Tests of noticing clients that have hung up, over real connections."""

import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from llmproxy.api.client_disconnect import disconnect_check
from tests.waiting import eventually


class Ends:
    """The two ends of one connection, and what is said of the client's."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = socket.create_connection(listener.getsockname())
            self.server, _ = listener.accept()
        self.is_disconnected = disconnect_check({"gunicorn.socket": self.server})


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.client.close()
    ends.server.close()


def close(ends: Ends) -> None:
    ends.client.close()


def reset(ends: Ends) -> None:
    ends.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ends.client.close()


def send_on_and_close(ends: Ends) -> None:
    """Sends data that nobody reads and closes; the data must not hide the close."""
    ends.client.sendall(b"POST / HTTP/1.1\r\n")
    ends.client.close()


@pytest.mark.parametrize("leave", [close, reset, send_on_and_close])
def test_a_disconnected_client_is_detected(ends: Ends, leave: Callable[[Ends], None]) -> None:
    assert not ends.is_disconnected()
    leave(ends)
    eventually(ends.is_disconnected)


def test_a_waiting_or_sending_client_is_connected(ends: Ends) -> None:
    ends.client.sendall(b"more")
    assert not ends.is_disconnected()
    assert ends.server.recv(4) == b"more", "it is asked without reading"


def test_a_connection_closed_at_this_end_is_not_reported(ends: Ends) -> None:
    ends.server.close()
    assert not ends.is_disconnected()


def test_no_client_is_disconnected_without_a_socket() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.close()
        assert not disconnect_check({"gunicorn.socket": here})()
    assert not disconnect_check({})()
