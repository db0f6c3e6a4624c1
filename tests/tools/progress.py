"""What is said at the terminal while things start: a line for each step, with the seconds since the start."""

import time


class Progress:
    """Says what happens, at once also where the output is a file."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """One step, with its time; further lines of the text are set under the first."""
        first, *rest = text.splitlines()
        print(f"{time.monotonic() - self._started:6.1f} s  {first}", flush=True)
        for line in rest:
            print(f"          {line}", flush=True)

    def show(self, text: str) -> None:
        """Text as it stands."""
        print(text, flush=True)
