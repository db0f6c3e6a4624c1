"""Ports of this machine: whether one is free, and which one to take."""

import errno
import os
import secrets
import socket
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from tests.tools import Unready

HIGHEST = 65535
# Below those that systems give to connections, which would take one of them before its server starts.
OURS = range(10_000, 20_000)
TRIES = 20
# Taken by no other process here before its server listens; the oldest ones do so by now.
_claims: deque[int] = deque(maxlen=64)
CAUSES = {errno.EADDRINUSE: "is taken", errno.EACCES: "is for root only"}


def named(environ: Mapping[str, str]) -> tuple[str, int]:
    """HOST and PORT of the environment, or their defaults."""
    host, given = environ.get("HOST") or "127.0.0.1", environ.get("PORT") or "8000"
    if not given.isascii() or not given.isdigit() or int(given) > HIGHEST:
        raise Unready(
            f"PORT is {given!r}; it must be a number from 1 to {HIGHEST}, or 0 for any free port."
        )
    return host, int(given)


def chosen(environ: Mapping[str, str]) -> tuple[str, int]:
    """The same with 0 replaced by a free port; Unready with a way out if nothing can listen there."""
    host, port = named(environ)
    try:
        return host, free(host, port)
    except OSError as error:
        other = port + 1 if 1024 <= port < HIGHEST else 8001
        cause = CAUSES.get(error.errno or 0)
        if cause is None:
            # No other port would help.
            raise Unready(
                f"Nothing can listen on {host} ({error.strerror}). HOST must be an address of this machine: "
                "HOST=127.0.0.1 make run"
            ) from None
        raise Unready(f"Port {port} {cause}. Choose another one: PORT={other} make run") from None


def free(host: str, port: int) -> int:
    """The port, or any free one for 0. Raises OSError if nothing can listen on it."""
    for _ in range(0 if port else TRIES):
        with suppress(OSError):
            return _probed(host, _claimed(OURS.start + secrets.randbelow(len(OURS))))
    return _probed(host, port)


def _probed(host: str, port: int) -> int:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Like servers: closed connections of a moment ago do not occupy a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)
        return int(probe.getsockname()[1])


def _claimed(port: int) -> int:
    """The port, which is this process' own from now on; OSError if another one, or this one, has chosen it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        # A name without a file, which goes with the process.
        claim.bind(f"\0a port of shell-backend: {port}")
    except OSError:
        claim.close()
        raise
    if len(_claims) == _claims.maxlen:
        os.close(_claims.popleft())
    _claims.append(claim.detach())
    return port


def same_or_free(before: int) -> int:
    """The loopback port of last time if it is still free, else any free one."""
    try:
        return free("127.0.0.1", before)
    except OSError:
        return free("127.0.0.1", 0)
