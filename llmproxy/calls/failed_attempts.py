"""The entry of a failed attempt on the record of its call."""

from datetime import datetime

from config.platform.http.errors import ExchangeError, TimedOut, TooLarge, Undecodable, Unreachable
from config.platform.problems.problem import Problem
from llmproxy.calls.attempt import Attempt
from llmproxy.calls.bodies import NoRoom
from llmproxy.calls.quotations import without_quotations
from llmproxy.dialects.protocol import ProviderProblem, UnreadableAnswer
from llmproxy.requests.call_request import CallRequest
from usage.models.failures import FailedAttempt, What

# The names of the failures without a status, those of special ones first.
_NAMES: dict[What, tuple[type[Exception], ...]] = {
    What.UNREACHABLE: (Unreachable,),
    What.TIMED_OUT: (TimedOut,),
    What.TOO_LARGE: (TooLarge,),
    What.UNREADABLE: (UnreadableAnswer, Undecodable),
    What.BROKEN: (ExchangeError,),
}


def failed_attempt(
    attempt: Attempt, *, request: CallRequest, now: datetime
) -> FailedAttempt | None:
    """Returns an attempt as it failed; None where its provider has no part in the failure."""
    failure, target = attempt.failure, attempt.target
    if isinstance(failure, NoRoom) or not isinstance(failure, ExchangeError | Problem):
        return None
    said = failure.said if isinstance(failure, ProviderProblem) else None
    words = str(failure) if isinstance(failure, ExchangeError) else ""
    return FailedAttempt(
        target.provider,
        target.model,
        _name_of(failure, is_asked=attempt.exchange is not None),
        said and said.status,
        without_quotations(said.words, request=request) if said else words,
        attempt.asked_at,
        now,
    )


def _name_of(failure: ExchangeError | Problem, *, is_asked: bool) -> What:
    if isinstance(failure, ProviderProblem) and failure.said is not None:
        return What.REFUSED
    kind = next((name for name, kinds in _NAMES.items() if isinstance(failure, kinds)), What.FAILED)
    # A provider whose key cannot be read is not asked.
    return kind if is_asked else What.NO_KEY
