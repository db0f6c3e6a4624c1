"""The CPU of a piece of work against a reference beside it: a fact about the code, on a slow and a busy machine too."""

import gc
import json
from collections.abc import Callable
from time import process_time

TRIES = 3
NUMBERS = list(range(100_000))


def takes_at_most(times: float, work: Callable[[], object]) -> bool:
    """Returns whether the work needs at most so many times the CPU of the reference, in the best of some tries.

    The reference writes and reads 100,000 numbers as JSON: some 20 ms of today's machines. The collector is off,
    because it would walk what all tests before have left.
    """
    return any(effort(work) <= times * effort(_reference) for _ in range(TRIES))


def least(work: Callable[[], object]) -> float:
    """Returns the processor seconds of this process, the fewest of some tries."""
    return min(effort(work) for _ in range(TRIES))


def effort(work: Callable[[], object]) -> float:
    """Returns the processor seconds of this process, in whatever thread it works."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        began = process_time()
        work()
        return process_time() - began
    finally:
        if was_enabled:
            gc.enable()


def _reference() -> None:
    json.loads(json.dumps(NUMBERS))
