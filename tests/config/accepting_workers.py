"""Says who takes how many of 200 connections: one worker that is ahead for ever, beside one that waits or is stuck."""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import mmap  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
from gevent import socket  # noqa: E402

from config.sharing import Accepting, Shares  # noqa: E402

CONNECTIONS = 200


class _Counted(Accepting):
    pauses: Any

    def stop_accepting(self) -> None:
        self.pauses[0] += 1
        super().stop_accepting()


def _shared() -> Any:
    return memoryview(mmap.mmap(-1, 4)).cast("i")


def _worker(listener: socket.socket, shares: Shares, place: int | None) -> tuple[int, Any, Any]:
    taken, pauses = _shared(), _shared()
    if pid := os.fork():
        return pid, taken, pauses
    gevent.reinit()
    _Counted.among, _Counted.pauses = (shares, place), pauses

    def handle(client: socket.socket, _: Any) -> None:
        taken[0] += 1
        client.close()

    _Counted(listener, handle=handle, spawn=100).start()
    gevent.sleep(60)
    os._exit(0)


def _taken(*, apart: float, is_stuck: bool) -> dict[str, int]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    shares = Shares(2)
    ahead, other = shares.take(), shares.take()
    workers = [_worker(listener, shares, place) for place in (ahead, other)]
    shares.say(ahead, 1_000)
    if is_stuck:
        os.kill(workers[1][0], signal.SIGSTOP)
    try:
        for _ in range(CONNECTIONS):
            with socket.create_connection(listener.getsockname(), timeout=20) as client:
                # It has been taken when it is closed.
                assert client.recv(1) == b""
            gevent.sleep(apart)
    finally:
        for pid, _, _ in workers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    (_, by_it, pauses), (_, by_other, _) = workers
    return {"ahead": by_it[0], "other": by_other[0], "pauses": pauses[0]}


if __name__ == "__main__":
    waits = _taken(apart=0.01, is_stuck=False)
    stuck = _taken(apart=0.0, is_stuck=True)
    print(json.dumps({"waits": waits, "stuck": stuck}))
