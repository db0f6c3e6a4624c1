"""Waiting for facts, in one place."""

from collections.abc import Callable
from time import monotonic, sleep

# Longer than any machine needs: what has not come about by then is broken.
PATIENCE = 120.0
BETWEEN = 0.01


def eventually(holds: Callable[[], object], *, seconds: float = PATIENCE) -> None:
    """Returns as soon as it holds; fails where it does not come about."""
    deadline = monotonic() + seconds
    while not holds():
        assert monotonic() < deadline, "it did not come about"
        sleep(BETWEEN)
