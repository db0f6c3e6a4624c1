"""Admits a call: chooses its model and targets, estimates its prompt and reserves its tokens."""

from dataclasses import dataclass
from datetime import datetime

from licensing.callers import Caller
from llmproxy.calls import outbox
from llmproxy.calls.estimating import estimate_of
from llmproxy.catalogue.choosing import Choice, able_targets, choose
from llmproxy.catalogue.readiness import taken_target
from llmproxy.catalogue.spending import affordable
from llmproxy.dialects.protocol import Target
from llmproxy.prompts.estimates import Estimate, least_tokens
from llmproxy.requests import thinking_budgets
from llmproxy.requests.call_request import CallRequest, Surface
from usage.caps import Reservation, ReservationRequest, reserve
from usage.costs import AskedRoute
from usage.limits import LEAST_OUTPUT, PlanCaps
from usage.refusals import Needs, check_caps

# Bytes of a request whose prompt takes longer to count (10 ms) than a query.
LARGE = 64 * 1024
# The tokens that a prompt or an answer may have where the model's context length is unknown.
MOST_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """An admitted call. ``targets`` are those that can take it, the first to be asked first; ``size``: its bytes."""

    caller: Caller
    request: CallRequest
    model: Choice
    targets: tuple[Target, ...]
    reservation: Reservation
    estimate: Estimate
    size: int = 0

    @property
    def context_length(self) -> int:
        """The most tokens that a prompt or an answer can have; of embeddings each input has the model's context."""
        is_one = self.request.surface is not Surface.EMBEDDINGS
        return (is_one and self.model.context_length) or MOST_TOKENS


def admit(
    *, caller: Caller, request: CallRequest, request_id: str, now: datetime, size: int = 0
) -> Admission:
    """Reserves a call's tokens, and keeps no database connection. ``size``: the bytes of the request."""
    assert caller.client_id is not None
    outbox.check_room()
    model = choose(request.model, surface=request.surface, caller=caller)
    plan = PlanCaps.of(caller)
    able = affordable(able_targets(model.targets, request), caller=caller, now=now)
    wanted = model.output_limit if request.output_wanted is None else request.output_wanted
    limit = min(wanted, model.output_limit)
    thinking_budgets.check(request.members, wanted=wanted, limit=limit)
    least = max(LEAST_OUTPUT, thinking_budgets.least_output(request.members)) if wanted else 0
    if size > LARGE:
        needs = Needs(
            user_id=caller.user_id,
            client_id=caller.client_id,
            prompt=least_tokens(request.prompt),
            output=least,
        )
        check_caps(needs, plan=plan, now=now)
    with taken_target(able, now=now) as target:
        targets = (target, *(each for each in able if each is not target))
        estimate = estimate_of(request, targets, model=model, of=caller.user_id)
        reservation_request = ReservationRequest(
            user_id=caller.user_id,
            session_id=caller.session_id,
            key_id=caller.key and caller.key.id,
            key_cap=caller.key and caller.key.monthly_output_tokens,
            client_id=caller.client_id,
            asked=AskedRoute(target.provider, target.prices, estimate.counted),
            request_id=request_id,
            streamed=request.stream,
            model=model.name,
            input_estimate=estimate.tokens,
            output_wanted=limit,
            least_output=least,
            labels=request.labels,
        )
        reservation = reserve(request=reservation_request, plan=plan, now=now)
    return Admission(
        caller=caller,
        request=request,
        model=model,
        targets=targets,
        reservation=reservation,
        estimate=estimate,
        size=size,
    )
