"""Races on the real database: the same moment for everyone, a connection for each."""

from collections.abc import Callable, Sequence
from threading import Barrier, Thread
from typing import TypeVar, cast

from django.db import connection

R = TypeVar("R")
LONGEST_SECONDS = 100


def race(*runners: Callable[[], R]) -> Sequence[R | Exception]:
    """Runs all of them from one barrier on; gives what each returned, or the exception it raised."""
    barrier = Barrier(len(runners))
    ended: list[R | Exception | None] = [None] * len(runners)

    def run(index: int) -> None:
        try:
            barrier.wait(timeout=60)
            ended[index] = runners[index]()
        except Exception as error:  # noqa: BLE001 - what a racer raises is its result
            ended[index] = error
        finally:
            connection.close()

    # Daemons: one that hangs fails its test and does not keep the run from its end.
    threads = [Thread(target=run, args=(index,), daemon=True) for index in range(len(runners))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LONGEST_SECONDS)
    assert not any(each.is_alive() for each in threads), "a racer hangs"
    return cast("Sequence[R | Exception]", ended)
