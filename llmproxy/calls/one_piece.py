"""Reads the body of an answer in one piece, and notes on its meter what it costs where it is none."""

from collections.abc import Callable
from typing import TypeVar

from config.platform.problems.problem import Problem
from llmproxy.calls import bodies
from llmproxy.calls.attempt import Attempt
from llmproxy.calls.call import Call
from llmproxy.calls.meter import Meter, State
from llmproxy.dialects.failures import FailedAnswer, is_refusal
from llmproxy.dialects.protocol import UnreadableAnswer

R = TypeVar("R")


def read(call: Call, attempt: Attempt, body: bytes, work: Callable[[bytes], R]) -> R:
    """Returns the result of ``work`` on a body, aside if that is large. Raises the problem of a failed answer."""
    try:
        return bodies.on_worker_thread(call, work, body)
    except FailedAnswer as failed:
        _note_failure(attempt.meter, failed)
        raise failed.problem from None
    except Problem as problem:
        # As in a stream, an error in place of an answer is a refusal, whatever the status.
        if is_refusal(body):
            attempt.meter.state = State.ENDED
        elif isinstance(problem, UnreadableAnswer):
            surface = call.admission.request.surface
            bodies.note_unread(attempt, surface, body[-bodies.TAIL :])
        raise


def _note_failure(meter: Meter, failed: FailedAnswer) -> None:
    meter.report, meter.prompt = failed.reported, failed.prompt
    # Nobody got it, and its provider has made it.
    meter.size = failed.size
    if failed.is_refusal:
        meter.state = State.ENDED
