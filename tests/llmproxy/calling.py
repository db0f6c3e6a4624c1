"""Calls as a view begins them."""

from typing import Any

from llmproxy.calls.admission import admit as admit_call
from llmproxy.calls.attempt import Attempt
from llmproxy.calls.call import Call
from llmproxy.calls.meter import Meter


def admit(**asked: Any) -> Call:
    """An admitted call that has asked nobody yet."""
    return Call(admit_call(**asked))


class Exchange:
    """An exchange that was sent at a time, or never; it only notes whether it was closed."""

    def __init__(self, sent_at: float | None = None) -> None:
        self._sent_at = sent_at
        self.closed = False

    def sent_at(self) -> float | None:
        return self._sent_at

    def close(self) -> None:
        self.closed = True


def asking(call: Call, *, sent_at: float | None = None) -> Meter:
    """Starts a call's attempt at its first target without sending anything; returns the attempt's meter."""
    attempt = Attempt(call.admission.targets[0], call.admission.estimate, deadline=call.deadline)
    attempt.exchange = Exchange(sent_at)  # type: ignore[assignment]
    call.begin(attempt)
    return attempt.meter
