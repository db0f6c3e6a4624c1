"""A model call, from its admission to its settlement."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from config.api.problems import InvalidRequest, Problem
from config.db.connections import release_connection
from licensing.callers import Caller
from llmproxy.calls.outbox import (
    Excess,
    PostponedMoves,
    Settled,
    Settlement,
    settle_or_retry,
)
from llmproxy.catalogue.choosing import Choice, choose
from llmproxy.catalogue.readiness import give_back, ready_target
from llmproxy.dialects.protocol import Codec, PromptUsage, Target, TokenUsage
from llmproxy.prompts import image_addresses
from llmproxy.prompts.estimates import (
    Estimate,
    delivered_tokens,
    images_in,
    least_tokens,
    prompt_estimate,
)
from llmproxy.requests.call_request import CallRequest
from usage.caps import Asked, Reservation, SoFar, refuse_hopeless, reserve
from usage.limits import LEAST_OUTPUT, PlanCaps, remaining_headers
from usage.models import UsageRecord
from usage.settlement import Spent

End = UsageRecord.End
# Ends that this side decided: until then the provider may have made output that nobody saw.
CUT = frozenset({End.CLIENT_GONE, End.STOPPED, End.TIMEOUT, End.CRASHED})
# Bytes of a request whose prompt takes longer to count (10 ms) than a query.
LARGE = 64 * 1024
# A report is charged up to so many times the estimate of the prompt and the output limit.
INPUT_TIMES = 4
OUTPUT_TIMES = 2
# A report is below what was delivered if it is below a token for each delta, or for each of so many bytes. Tokens of
# some languages and of program text are nearly as long.
LONG_TOKEN = 16
# A provider is out of control only well past its output limit, by its report, by the number of deltas, or by tokens of
# RUNAWAY_BYTES: a delta may be less than a token, and a token may be long.
RUNAWAY_TIMES = 2
RUNAWAY_SLACK = 256
RUNAWAY_BYTES = 8


@dataclass(slots=True, kw_only=True)
class Call:
    """An admitted call."""

    caller: Caller
    request: CallRequest
    model: Choice
    # Whom it asks, and the targets that it can still go on to.
    target: Target
    others: tuple[Target, ...] = ()
    # Moves between them that the database was away for.
    moves: PostponedMoves = field(default_factory=PostponedMoves)
    reservation: Reservation
    input_estimate: int
    # When the request was sent, on the monotonic clock; None where the provider cannot have received it.
    sent_at: Callable[[], float | None] = lambda: None
    # The answer so far: whether the provider refused or began, and its reported usage.
    refused: bool = False
    began: bool = False
    reported: TokenUsage | None = None
    # Whether output was delivered after the report, which does not include it.
    exceeds_report: bool = False
    # The prompt's usage, where the provider reports it first.
    prompt: PromptUsage | None = None
    # The output delivered: its deltas, its bytes, and the time of the last delta on the monotonic clock.
    deltas: int = 0
    size: int = 0
    delta_at: float | None = None
    # Whether the watch has cut this call, and the reason for its caller.
    cut: bool = False
    stopped: Problem | None = None
    # The check whether the client has disconnected, and its last result.
    is_disconnected: Callable[[], bool] = bool
    disconnected: bool = False
    first_byte_at: datetime | None = None
    # Whether the answer has its finish reason.
    finished: bool = False
    end: UsageRecord.End | None = None
    spent: Spent | None = None
    _settled: Settled | None = None
    _lock: Any = field(default_factory=Lock)

    @property
    def id(self) -> UUID:
        return self.reservation.record_id

    @property
    def codec(self) -> Codec:
        return self.target.codec(self.request.surface)

    @property
    def own_model_name(self) -> str | None:
        """The model's name in the answer; None where it is the provider's name."""
        return self.model.name if self.model.name != self.target.model else None

    def mark_first_byte(self) -> None:
        if self.first_byte_at is None:
            self.first_byte_at = timezone.now()

    def begin_again(self, target: Target) -> None:
        """Goes on to another target, as if nobody had been asked before."""
        self.others = tuple(each for each in self.others if each is not target)
        self.target = target
        self.refused = self.began = False
        self.sent_at = lambda: None
        self.reported = self.prompt = self.first_byte_at = None

    def unseen_output(self) -> int:
        """The most output that the provider may have made since it was last heard of."""
        return min(self._unseen(), self.reservation.output_limit)

    def is_runaway(self) -> bool:
        """Whether the provider has gone far past the output limit of the request."""
        reported = self.reported.output if self.reported is not None else 0
        output = max(self.deltas, self.size // RUNAWAY_BYTES, reported)
        return output > RUNAWAY_TIMES * self.reservation.output_limit + RUNAWAY_SLACK

    def settle(self, end: UsageRecord.End) -> bool:
        """Settles the call. Only the first end has an effect.

        Returns False while the database is unavailable; the same settlement is retried until it succeeds.
        """
        with self._lock:
            if self._settled is None:
                self.end = end
                self.spent, source = self._spent(end, unseen=self._unseen())
                settlement = Settlement(
                    self.id,
                    self.caller.user_id,
                    self.spent,
                    source,
                    end,
                    self.first_byte_at,
                    by_capped_key=self.caller.key is not None,
                    moves=self.moves,
                )
                self._settled = settle_or_retry(settlement, self._excess(self.spent))
            return self._settled.is_set()

    def awaits_usage(self) -> bool:
        """Whether only the provider's report is missing."""
        return self.finished and not self.is_reported and self.end is None

    @property
    def is_reported(self) -> bool:
        """Whether the provider has reported all output delivered."""
        return self.reported is not None and not self.exceeds_report

    def charged_usage(self) -> TokenUsage:
        """The usage charged for a settled call."""
        assert self.spent is not None
        spent = self.spent
        return TokenUsage(
            spent.input, spent.output, spent.cached_input, spent.reasoning, spent.cache_write
        )

    def wait_settled(self, seconds: float) -> bool:
        """Waits for a postponed settlement; returns whether it was made."""
        return self._settled is not None and self._settled.wait(seconds)

    def remaining(self, *, now: datetime) -> dict[str, str]:
        """The headers of the tokens left: after the settlement, or until then as before this call.

        The caps are those of the admission. With them stands the output limit, where it is lower than was asked for,
        or than the model's where nothing was.
        """
        reserved, headers = self.reservation, {}
        wanted = self.request.output_wanted
        if reserved.output_limit < (self.model.output_limit if wanted is None else wanted):
            headers["X-Output-Limit"] = str(reserved.output_limit)
        after = self._settled.after if self._settled is not None else None
        month, day, cap = reserved.remaining_month, reserved.remaining_day, reserved.day_cap
        if after is not None:
            month, day = after.remaining_month, None if cap is None else cap - after.taken_today
        return headers | remaining_headers(month=month, day=day, day_cap=cap, now=now)

    def so_far(self) -> SoFar:
        """The charge if this process died now; unknown for a one-shot answer before its end."""
        if not self.request.stream:
            return SoFar(self.id, None, None, self.first_byte_at)
        # Without the unseen output, so that a silent stream is not saved again every few seconds.
        spent, _ = self._spent(End.CRASHED, unseen=0)
        return SoFar(self.id, spent.input, spent.output, self.first_byte_at)

    def _spent(self, end: UsageRecord.End, *, unseen: int) -> tuple[Spent, UsageRecord.Source]:
        """The charge: the provider's report, else the output delivered and what may have been made unseen."""
        report, limit = self.reported, self.reservation.output_limit
        if report is None and not self._is_charged(end):
            return Spent(), UsageRecord.Source.COUNTED
        known = report or TokenUsage(0, 0)
        output = min(known.output, max(OUTPUT_TIMES * limit, self._least_delivered))
        is_believed = report is not None and self._is_believed(report, end)
        if not is_believed:
            output = max(output, delivered_tokens(deltas=self.deltas, size=self.size))
            if end in CUT and not self.finished:
                output = max(output, min(output + unseen, limit))
        # A stream may begin with an empty report, and no prompt is empty.
        has_prompt = report is not None and (is_believed or report.input > 0)
        prompt = (report if has_prompt else self.prompt) or PromptUsage(self.input_estimate)
        given = min(prompt.input, INPUT_TIMES * self.input_estimate)
        cached = min(prompt.cached_input, given)
        spent = Spent(
            input=given,
            cached_input=cached,
            cache_write=min(prompt.cache_write, given - cached),
            output=output,
            reasoning=min(known.reasoning, output),
        )
        if is_believed:
            return spent, UsageRecord.Source.PROVIDER
        is_counted = report is not None or self.prompt is not None or self.size > 0
        return spent, UsageRecord.Source.COUNTED if is_counted else UsageRecord.Source.ESTIMATED

    def _is_charged(self, end: UsageRecord.End) -> bool:
        """Whether a call without a report is charged: not if it never reached the provider, or was refused at once."""
        was_sent = end in CUT and not self.refused and self.sent_at() is not None
        return self.began or was_sent

    def _is_believed(self, report: TokenUsage, end: UsageRecord.End) -> bool:
        """Whether a report is of all output, and not below what was delivered."""
        # A stream may begin with an empty report.
        is_last = not self.request.stream or self.finished or end == End.DONE or report.output > 0
        return is_last and not self.exceeds_report and report.output >= self._least_delivered

    @property
    def _least_delivered(self) -> int:
        return max(self.deltas, -(-self.size // LONG_TOKEN))

    def _unseen(self) -> int:
        """The output that the provider may have made since the last delta, or since the request was sent."""
        since = self.sent_at() if self.delta_at is None else self.delta_at
        silence = 0.0 if since is None else time.monotonic() - since
        return int(silence * settings.LLM_UNSEEN_TOKENS_PER_SECOND)

    def _excess(self, spent: Spent) -> Excess | None:
        """The tokens of a report that is charged in part only."""
        report = self.reported
        if report is None or (report.input <= spent.input and report.output <= spent.output):
            return None
        return Excess(report.input + report.output, spent.input + spent.output)


def admit(
    *, caller: Caller, request: CallRequest, request_id: str, now: datetime, size: int = 0
) -> Call:
    """Reserves a call's tokens and releases the database connection. ``size``: the bytes of the request."""
    assert caller.client_id is not None
    model = choose(request.model, surface=request.surface, caller=caller)
    targets = able_targets(model.targets, request)
    plan, prompt = PlanCaps.of(caller), request.prompt
    wanted = model.output_limit if request.output_wanted is None else request.output_wanted
    if size > LARGE:
        refuse_hopeless(
            user_id=caller.user_id,
            client_id=caller.client_id,
            plan=plan,
            least_input=least_tokens(prompt),
            now=now,
            output=LEAST_OUTPUT if wanted else 0,
        )
    target = ready_target(targets, is_only=len(targets) == 1, now=now)
    others = tuple(each for each in targets if each is not target)
    estimate = estimate_of(request, (target, *others), model=model)
    asked = Asked(
        user_id=caller.user_id,
        session_id=caller.session_id,
        key_id=caller.key and caller.key.id,
        key_cap=caller.key and caller.key.monthly_output_tokens,
        client_id=caller.client_id,
        provider=target.provider,
        request_id=request_id,
        streamed=request.stream,
        model=model.name,
        input_estimate=estimate.tokens,
        counted_input=estimate.counted,
        output_wanted=min(wanted, model.output_limit),
        prices=target.prices,
        labels=request.labels,
    )
    try:
        reservation = reserve(asked=asked, plan=plan, now=now)
    except Exception:
        give_back(target, now=now)
        raise
    release_connection()
    return Call(
        caller=caller,
        request=request,
        model=model,
        target=target,
        others=others,
        reservation=reservation,
        input_estimate=estimate.tokens,
    )


def estimate_of(request: CallRequest, targets: Sequence[Target], *, model: Choice) -> Estimate:
    """The estimate of a prompt: as counted for the first of these targets, and the most that any makes of it."""
    prompt = request.prompt
    return prompt_estimate(
        prompt,
        measures=tuple(dict.fromkeys(each.measure for each in targets)),
        images=sum(_image_tokens(image, model, targets) for image in images_in(prompt)),
        overhead=max(
            codec.prompt_overhead(request)
            for codec in {each.codec(request.surface) for each in targets}
        ),
    )


def able_targets(targets: Sequence[Target], request: CallRequest) -> list[Target]:
    """The targets that can take a request. It is held to the first, whose faults it is refused for."""
    able: list[Target] = []
    for target in targets:
        try:
            target.check(request)
            # What the dialect does not know is refused before it is read.
            image_addresses.check(request.fetched_images(), base_url=target.base_url)
        except InvalidRequest:
            if not able:
                raise
        else:
            able.append(target)
    return able


def _image_tokens(image: dict[str, Any], model: Choice, targets: Sequence[Target]) -> int:
    if model.image_tokens is not None:
        return model.image_tokens
    return max(each.dialect.image_tokens(image, each.model) for each in targets)
