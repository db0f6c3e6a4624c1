"""Says what becomes of four who ask at nearly the same time when the second is killed, by where it is then."""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
from gevent.event import Event  # noqa: E402

from config.together import Together  # noqa: E402

SECONDS = 10


class _Leaving(Together[int, int]):
    """Says who goes with whom."""

    told_to_go = None

    def _leave(self, first: Any) -> Any:
        group = super()._leave(first)
        if self.told_to_go and first.question == 2:
            self.told_to_go()
        return group


def _ends(killed: str) -> list[Any]:
    first_may_come_back, others_left, others_may = Event(), Event(), Event()

    def ask(asked: Sequence[int]) -> list[int | Exception]:
        if asked == [1]:
            assert first_may_come_back.wait(SECONDS)
        elif 2 in asked:
            others_left.set()
            assert others_may.wait(SECONDS)
        return [2 * number for number in asked]

    together = _Leaving(ask, undone=lambda _: False, patience=SECONDS)
    asking = []
    for number in (1, 2, 3, 4):
        # Once somebody has had company, whoever comes first lets others come.
        together._crowded = killed == "letting others come" and number == 2
        if together._crowded:
            first_may_come_back.set()
            asking[0].join(SECONDS)
        asking.append(gevent.spawn(together, number))
        gevent.sleep(0)
        if together._crowded:
            asking[1].kill(block=False)
    second = asking[1]
    if killed == "just told to go":
        together.told_to_go = lambda: second.kill(block=False)
    if killed == "waiting":
        second.kill()
    first_may_come_back.set()
    if killed == "on the way for others":
        assert others_left.wait(SECONDS)
        second.kill()
    others_may.set()
    gevent.joinall(asking, timeout=2 * SECONDS)
    assert together(5) == 10
    assert together._away == 0
    return [_end(each) for each in asking]


def _end(asker: gevent.Greenlet) -> Any:
    assert asker.ready()
    if asker.exception is not None:
        return type(asker.exception).__name__
    return type(asker.value).__name__ if isinstance(asker.value, BaseException) else asker.value


if __name__ == "__main__":
    kinds = ("letting others come", "waiting", "just told to go", "on the way for others")
    # What is raised in a greenlet is printed as well, which is not what is asked for here.
    gevent.get_hub().exception_stream = None
    print(json.dumps({kind: _ends(kind) for kind in kinds}))
