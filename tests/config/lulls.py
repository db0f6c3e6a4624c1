"""Says in what order things come: the end of a lull, that of its moment, and what else there is to do meanwhile."""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import socket  # noqa: E402
from collections.abc import Callable  # noqa: E402

import gevent  # noqa: E402

from config import together  # noqa: E402

# Long beside what there is to do, however busy the machine.
MOMENT = 1.0


def _order(others: Callable[[list[str]], list[gevent.Greenlet]]) -> list[str]:
    said: list[str] = []
    running = others(said)
    # Set first, so that of two that are due at once it is the first.
    moment = gevent.spawn_later(MOMENT, said.append, "a moment")
    gevent.sleep(0)
    together.lull()
    said.append("lull")
    moment.join()
    gevent.killall(running)
    return said


def _readers(said: list[str]) -> list[gevent.Greenlet]:
    """One reads what is there already, the other what the first then writes."""
    near, far = socket.socketpair()
    there, back = socket.socketpair()

    def first() -> None:
        near.recv(1)
        said.append("read")
        there.sendall(b"x")

    def second() -> None:
        back.recv(1)
        said.append("read")

    readers = [gevent.spawn(first), gevent.spawn(second)]
    gevent.sleep(0)
    far.sendall(b"x")
    return readers


def _never_done(_: list[str]) -> list[gevent.Greenlet]:
    def spin() -> None:
        while True:
            gevent.sleep(0)

    return [gevent.spawn(spin)]


if __name__ == "__main__":
    together.MOMENT_SECONDS = MOMENT
    print(
        json.dumps(
            {
                "nothing to do": _order(lambda _: []),
                "bytes to read": _order(_readers),
                "never done": _order(_never_done),
            }
        )
    )
