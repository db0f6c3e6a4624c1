"""Whether the client of a request has hung up, asked of its connection without waiting and without reading."""

import socket
from collections.abc import Callable, Mapping
from typing import Any

# What Linux says of a connection whose both ends are there; anything else is half closed, closed or reset.
ESTABLISHED = 1


def watched(environ: Mapping[str, Any]) -> Callable[[], bool]:
    """Says for a WSGI request whether its client has hung up; never, where the server does not show the socket.

    A client that closes its half of the connection and still reads counts as gone, as it does for nginx.
    """
    sock = environ.get("gunicorn.socket")
    if not isinstance(sock, socket.socket) or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return bool
    return lambda: _has_hung_up(sock)


def _has_hung_up(sock: socket.socket) -> bool:
    try:
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        # Closed at our end: whoever did so has seen to the call.
        return False
    return state[0] != ESTABLISHED
