"""The length of the bench: as long as figures need, or with ``--short`` just one run of every part."""

import os
from typing import TypeVar

# Read when a part is loaded, so it is set before that, and inherited by processes that parts start.
SHORT = "BENCH_SHORT"

T = TypeVar("T")


def usual(value: T, *, short: T) -> T:
    return short if SHORT in os.environ else value
