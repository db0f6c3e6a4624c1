"""Races on the real database: the same moment for everyone, a connection for each."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from django.db import connection

R = TypeVar("R")


def race(*runners: Callable[[], R]) -> Sequence[R | Exception]:
    """Runs all of them from one barrier on; gives what each returned, or the exception it raised."""
    barrier = Barrier(len(runners))

    def run(runner: Callable[[], R]) -> R | Exception:
        try:
            barrier.wait(timeout=30)
            return runner()
        except Exception as error:  # noqa: BLE001 - what a racer raises is its result
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(runners)) as pool:
        return list(pool.map(run, runners))
