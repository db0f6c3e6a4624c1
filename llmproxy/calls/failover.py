"""The attempts at a call: at its first target and, while nothing of an answer has come, at those of its other routes.

A call goes on from a target that cannot be reached, is silent, or refuses for reasons that are not the caller's. It
does not go on once an answer has begun, for a caller who has left or was stopped, or past its deadline.
"""

import logging
import time
from collections.abc import Generator, Sequence
from contextlib import suppress

from django.conf import settings
from django.utils import timezone

from config.platform.http.errors import Broken, ExchangeError, TimedOut, TooLarge, Unreachable
from config.platform.problems.problem import Problem
from llmproxy.calls.attempt import Attempt
from llmproxy.calls.bodies import NoRoom
from llmproxy.calls.call import Call
from llmproxy.calls.charge import abandoned
from llmproxy.calls.estimating import estimate_of
from llmproxy.calls.failed_attempts import failed_attempt
from llmproxy.calls.meter import State
from llmproxy.calls.watch import watched
from llmproxy.catalogue import health, readiness
from llmproxy.catalogue.limit_names import other_limit_name
from llmproxy.catalogue.readiness import ready_target
from llmproxy.dialects.protocol import (
    ProviderError,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
    Target,
    UnreadableAnswer,
)
from llmproxy.dialects.refusals import LimitNameRefused, MemberRefused
from llmproxy.requests.call_request import Surface
from usage.costs import Abandoned

log = logging.getLogger(__name__)

# Failures of a provider, and not of the caller or of this service.
PROVIDER_FAULTS = (
    ExchangeError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
)


class OverShare(TimedOut):
    """A whole answer has not come in its share of the time; it is awaited on where nobody else can be asked."""


def attempts(call: Call) -> Generator[Attempt]:
    """Yields an attempt at each target in turn, as long as the one before has failed before an answer.

    The consumer sets ``failure`` and asks for the next attempt; the failure is raised where the call ends with it. An
    attempt that was only over its share of the time is yielded again, with all the time that is left. The call is
    watched for as long as this is open.
    """
    admission = call.admission
    others, estimate = list(admission.targets[1:]), admission.estimate
    target = admission.targets[0]
    before: Abandoned | None = None
    with watched(call):
        while True:
            routes = 1 + len(others)
            attempt = Attempt(target, estimate, deadline=call.deadline, routes=routes)
            call.begin(attempt, after=before)
            try:
                attempt.ask(admission, deadline=call.deadline, has_next=bool(others))
            except ProviderUnavailable as unreadable:
                attempt.failure = unreadable
            if call.stop:
                # It was cut before it had an exchange.
                attempt.close()
            if attempt.failure is None:
                yield attempt
            while (following := _next(call, others, attempt)) is None and isinstance(
                attempt.failure, OverShare
            ):
                attempt.failure, attempt.share = None, settings.LLM_MAX_SECONDS
                yield attempt
            failure = attempt.failure
            assert failure is not None
            _note_failure(call, attempt, failure)
            if not call.stop and (
                failed := failed_attempt(attempt, request=admission.request, now=timezone.now())
            ):
                call.note_failed(failed)
            if following is None:
                raise failure
            extra = {"provider": target.provider, "reason": type(failure).__name__}
            log.warning("call_goes_on", extra=extra)
            attempt.close()
            call.give_back_room()
            before = abandoned(admission, attempt, now=timezone.now())
            target = following
            others = [each for each in others if each is not target]
            estimate = estimate_of(
                admission.request,
                (target,),
                model=admission.model,
                of=admission.caller.user_id,
                files=admission.estimate.files,
            )


def _note_failure(call: Call, attempt: Attempt, failure: Exception) -> None:
    """Notes a failure, unless it is of this side's making."""
    if call.stop or call.left_at is not None or isinstance(failure, NoRoom):
        return
    if isinstance(failure, ProviderRejected):
        health.note_answer(attempt.target, asked_at=attempt.sent_at() or 0.0)
    elif isinstance(failure, PROVIDER_FAULTS):
        health.note(attempt.target.provider, failed=True)
        route, now = attempt.target.route, timezone.now()
        if len(call.admission.targets) == 1:
            return
        if isinstance(failure, TimedOut):
            person = call.admission.caller.user_id
            readiness.note_silence(route, person=person, asked_at=attempt.asked_at, now=now)
        else:
            readiness.note_failure(route, wait=_asked_wait(failure), now=now)


def _next(call: Call, others: Sequence[Target], attempt: Attempt) -> Target | None:
    """The target to ask next; None where the failure ends the call."""
    is_over = call.stop or call.left_at is not None or time.monotonic() >= call.deadline
    if is_over or call.has_left():
        return None
    if others and _comes_before_an_answer(call, attempt):
        with suppress(ProviderUnavailable):
            return ready_target(others, is_only=False, now=timezone.now())
    return _asked_otherwise(call, attempt)


def _asked_otherwise(call: Call, attempt: Attempt) -> Target | None:
    """The target by the limit's other name or without a member, each once, where its server has refused the first."""
    target, request = attempt.target, call.admission.request
    first = next(each for each in call.admission.targets if each.route == target.route)
    is_first_name = request.surface is Surface.CHAT and target.limit_name == first.limit_name
    match attempt.failure:
        case LimitNameRefused() if is_first_name:
            return target._replace(limit_name=other_limit_name(target.limit_name))
        case MemberRefused(refused=refused) if (
            refused.member in request.members and not target.drops
        ):
            return target._replace(drops=frozenset({refused}))
    return None


def _comes_before_an_answer(call: Call, attempt: Attempt) -> bool:
    """Returns whether nothing of an answer had come, and the failure is none of the request."""
    meter = attempt.meter
    if meter.has_output:
        return False
    match attempt.failure:
        case Unreachable():
            return True
        case Broken():
            return meter.state is State.ASKING
        case TimedOut():
            return call.admission.request.stream or meter.first_byte_at is None
        case TooLarge() | UnreadableAnswer(goes_on=False):
            return False
    return isinstance(attempt.failure, PROVIDER_FAULTS)


def _asked_wait(failure: BaseException) -> int | None:
    """The seconds for which a provider asked not to be asked again."""
    wait = failure.headers.get("Retry-After") if isinstance(failure, Problem) else None
    return int(wait) if wait else None
