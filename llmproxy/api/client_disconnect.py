"""Detects that the client of a request has disconnected, without waiting and without reading from its connection."""

import socket
from collections.abc import Callable, Mapping
from typing import Any

# The state that Linux reports while both ends are open; any other is half closed, closed or reset.
ESTABLISHED = 1


def disconnect_check(environ: Mapping[str, Any]) -> Callable[[], bool]:
    """Returns a function that says whether the client of a WSGI request has disconnected.

    It always returns False where the server passes no socket. A client that closes its half of the connection and still
    reads counts as disconnected, as it does for nginx.
    """
    sock = environ.get("gunicorn.socket")
    if not isinstance(sock, socket.socket) or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return bool
    return lambda: _is_disconnected(sock)


def _is_disconnected(sock: socket.socket) -> bool:
    try:
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        # This end has closed the socket, which ended the call too.
        return False
    return state[0] != ESTABLISHED
