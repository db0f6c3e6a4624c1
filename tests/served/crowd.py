"""Many callers at the same moment."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

R = TypeVar("R")


def all_at_once(
    count: int, act: Callable[[int], R], *, meanwhile: Callable[[], None] | None = None
) -> Sequence[R]:
    """Returns the results of ``count`` threads; calls ``meanwhile`` again and again until all are there."""
    together = Barrier(count)

    def run(number: int) -> R:
        together.wait(timeout=60)
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        running: list[Future[R]] = [pool.submit(run, number) for number in range(count)]
        while meanwhile is not None and not all(each.done() for each in running):
            meanwhile()
        return [each.result() for each in running]
