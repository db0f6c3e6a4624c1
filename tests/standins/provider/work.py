"""The stand-in provider's work for a call, as it would bill it, also without a caller."""

import time

import gevent

from tests.standins.provider.answers import Answer, Json


class Work:
    """The tokens made for a call so far, and whether the caller was told."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._thought = 0.0
        self._made = 0
        self.reported = False

    def think(self, seconds: float) -> None:
        """A silence in which tokens may be made."""
        began = time.monotonic()
        try:
            gevent.sleep(seconds)
        finally:
            self._thought += self._answer.asked.thinks * min(seconds, time.monotonic() - began)

    def make_all(self) -> None:
        """Makes the whole answer, in silence."""
        each, number = self._answer.asked.delay, len(self._answer.pieces)
        began = time.monotonic()
        try:
            gevent.sleep(each * number)
        finally:
            self._made = min(number, int((time.monotonic() - began) / each)) if each else number

    def sent(self, number: int) -> None:
        """An event of a stream is on its way: the role, the pieces, the end, the usage and [DONE]."""
        pieces = len(self._answer.pieces)
        self._made = min(number, pieces)
        self.reported = number > pieces + 1 and self._answer.asked.usage == "yes"

    def told(self) -> Json:
        usage = self._answer.usage()
        output = usage["completion_tokens"] if self.reported else self._made + int(self._thought)
        return {"input": usage["prompt_tokens"], "output": output, "reported": self.reported}
