"""Counts the tokens of a prompt without asking it: by the provider's count, or else by our own estimate.

A count costs nothing, so it reserves nothing and leaves no record. A prompt is counted only for whom a call with it
might be made: not for somebody whose calls are stopped or whose tokens are used up or surely too few, nor where the
client's budget is spent or a spending limit is reached.
"""

from contextlib import suppress
from datetime import datetime

from config.platform.db.connections import release_connection
from config.platform.encryption import CannotDecrypt
from config.platform.http.errors import ExchangeError
from licensing.callers import Caller
from llmproxy.calls.admission import LARGE
from llmproxy.calls.estimating import estimate_of
from llmproxy.catalogue.choosing import able_targets, choose
from llmproxy.catalogue.readiness import end_try, ready_target
from llmproxy.catalogue.spending import affordable
from llmproxy.dialects.asking import ask_once
from llmproxy.dialects.protocol import ProviderUnavailable, Target
from llmproxy.dialects.refusals import problem_of
from llmproxy.prompts.estimates import least_tokens
from llmproxy.requests.call_request import CallRequest
from usage.limits import PlanCaps
from usage.refusals import CapReserved, Needs, check_caps

# A slower provider is not waited for: the estimate is nearly as good.
SECONDS = 10.0
MAX_ANSWER = 64 * 1024
OK = 200
# The caller's own faults. Other refusals, such as of servers that count nothing, leave the estimate.
REFUSALS = frozenset({400, 413, 422})


def count_tokens(*, caller: Caller, request: CallRequest, now: datetime, size: int = 0) -> int:
    """The tokens of a prompt. ``size``: the bytes of the request.

    Raises ``UnknownModel``, ``NotEntitled`` and ``InvalidRequest`` as a call does, ``ModelCallsStopped``,
    ``BudgetExceeded``, ``SpendStopped``, ``MonthlyCapExceeded``, ``DailyLimitReached`` and ``ProviderRejected``.
    """
    assert caller.client_id is not None
    model = choose(request.model, surface=request.surface, caller=caller)
    targets = affordable(able_targets(model.targets, request), caller=caller, now=now)
    # Running calls may hold all that is left: a count takes nothing of it.
    with suppress(CapReserved):
        needs = Needs(
            user_id=caller.user_id,
            client_id=caller.client_id,
            prompt=least_tokens(request.prompt) if size > LARGE else 1,
            key_id=caller.key and caller.key.id,
            key_cap=caller.key and caller.key.monthly_output_tokens,
        )
        check_caps(needs, plan=PlanCaps.of(caller), now=now)
    release_connection()
    try:
        target = ready_target(targets, is_only=len(targets) == 1, now=now)
        # The next call tries a route that has failed, not this count.
        end_try(target.route)
        counted = _providers_count(request, target)
    except (ProviderUnavailable, CannotDecrypt):
        target, counted = targets[0], None
    if counted is not None:
        return counted
    return estimate_of(request, [target], model=model, of=caller.user_id).tokens


def _providers_count(request: CallRequest, target: Target) -> int | None:
    """The count of the target's provider; None where it gives none. Raises ``CannotDecrypt``."""
    codec = target.codec(request.surface)
    counting = codec.count_request(request, target=target)
    if counting is None:
        return None
    try:
        head, answer = ask_once(counting, seconds=SECONDS, most_bytes=MAX_ANSWER)
    except ExchangeError:
        return None
    if head.status in REFUSALS:
        raise problem_of(head.status, head.headers, answer, key=target.key())
    return codec.count_in(answer) if head.status == OK else None
