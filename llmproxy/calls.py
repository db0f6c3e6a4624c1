"""A model call, from its admission to its settlement."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, Lock
from typing import Any
from uuid import UUID

from django.utils import timezone

from config.api.problems import Problem
from config.db.connections import release_connection
from licensing.callers import Caller
from llmproxy.catalogue import Choice, choose
from llmproxy.chat import Chat
from llmproxy.estimates import delivered_tokens, prompt_tokens
from llmproxy.providers import provider
from llmproxy.providers.protocol import PromptUsage, TokenUsage
from llmproxy.settlement_retry import Settlement, settle_or_retry
from usage.caps import Asked, Reservation, SoFar, reserve
from usage.limits import PlanCaps
from usage.models import UsageRecord
from usage.settlement import Spent

End = UsageRecord.End
# Ends that the provider did not cause: the prompt is charged although the provider had not begun to answer.
PROMPT_CHARGED = frozenset({End.CLIENT_GONE, End.STOPPED, End.CRASHED})
# A provider is out of control only well past its output limit, by its report, by the number of deltas, or by tokens of
# RUNAWAY_BYTES: a delta may be less than a token, and a token may be long.
RUNAWAY_TIMES = 2
RUNAWAY_SLACK = 256
RUNAWAY_BYTES = 8


@dataclass(slots=True, kw_only=True)
class Call:
    """An admitted call."""

    caller: Caller
    chat: Chat
    model: Choice
    reservation: Reservation
    input_estimate: int
    # The answer so far: whether the provider began, and its reported usage.
    began: bool = False
    reported: TokenUsage | None = None
    # Whether output was delivered after the report, which does not include it.
    exceeds_report: bool = False
    # The prompt's usage, where the provider reports it first.
    prompt: PromptUsage | None = None
    # The output delivered: its deltas, and its bytes.
    deltas: int = 0
    size: int = 0
    # The reason why the watch ended this call.
    stopped: Problem | None = None
    # The check whether the client has disconnected, and its last result.
    is_disconnected: Callable[[], bool] = bool
    disconnected: bool = False
    first_byte_at: datetime | None = None
    # Whether the answer has its finish reason.
    finished: bool = False
    end: UsageRecord.End | None = None
    spent: Spent | None = None
    _settled: Event | None = None
    _lock: Any = field(default_factory=Lock)

    @property
    def id(self) -> UUID:
        return self.reservation.record_id

    def mark_first_byte(self) -> None:
        if self.first_byte_at is None:
            self.first_byte_at = timezone.now()

    def is_runaway(self) -> bool:
        """Whether the provider has gone far past the output limit of the request."""
        reported = self.reported.output if self.reported is not None else 0
        output = max(self.deltas, self.size // RUNAWAY_BYTES, reported)
        return output > RUNAWAY_TIMES * self.reservation.output_limit + RUNAWAY_SLACK

    def settle(self, end: UsageRecord.End) -> bool:
        """Settles the call by the provider's report, else by the output delivered. Only the first end has an effect.

        Returns False while the database is unavailable; the same settlement is retried until it succeeds.
        """
        with self._lock:
            if self._settled is None:
                self.end = end
                self.spent, source = self._spent(end)
                settlement = Settlement(
                    self.id, self.caller.user_id, self.spent, source, end, self.first_byte_at
                )
                self._settled = settle_or_retry(settlement)
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
        return TokenUsage(spent.input, spent.output, spent.cached_input, spent.reasoning)

    def wait_settled(self, seconds: float) -> bool:
        """Waits for a postponed settlement; returns whether it was made."""
        return self._settled is not None and self._settled.wait(seconds)

    def so_far(self) -> SoFar:
        """The charge if this process died now; unknown for a one-shot answer before its end."""
        if not self.chat.stream:
            return SoFar(self.id, None, None, self.first_byte_at)
        spent, _ = self._spent(End.CRASHED)
        return SoFar(self.id, spent.input, spent.output, self.first_byte_at)

    def _spent(self, end: UsageRecord.End) -> tuple[Spent, UsageRecord.Source]:
        output = delivered_tokens(deltas=self.deltas, size=self.size)
        if (known := self.reported) is not None:
            # More output may follow a report in the middle of a stream.
            is_last = end == End.DONE and self.is_reported
            is_whole = is_last or not self.chat.stream or known.output >= output
            output = known.output if is_whole else output
            spent = Spent(
                input=known.input,
                cached_input=min(known.cached_input, known.input),
                output=output,
                reasoning=min(known.reasoning, output),
            )
            return spent, UsageRecord.Source.PROVIDER if is_whole else UsageRecord.Source.COUNTED
        if not self.began and end not in PROMPT_CHARGED:
            # A provider that fails before its first byte charges nothing.
            return Spent(), UsageRecord.Source.COUNTED
        prompt = self.prompt or PromptUsage(self.input_estimate)
        spent = Spent(input=prompt.input, cached_input=prompt.cached_input, output=output)
        is_estimate = self.prompt is None and not output
        return spent, UsageRecord.Source.ESTIMATED if is_estimate else UsageRecord.Source.COUNTED


def admit(*, caller: Caller, chat: Chat, request_id: str, now: datetime) -> Call:
    """Reserves a call's tokens and releases the database connection."""
    provider().check(chat)
    assert caller.client_id is not None
    model = choose(chat.model, caller=caller)
    image = provider().image_tokens if model.image_tokens is None else model.image_tokens
    estimate = prompt_tokens(chat.members, image_tokens=image) + provider().prompt_overhead(chat)
    asked = Asked(
        user_id=caller.user_id,
        session_id=caller.session_id,
        client_id=caller.client_id,
        provider=provider().name,
        request_id=request_id,
        streamed=chat.stream,
        model=model.name,
        input_estimate=estimate,
        output_wanted=min(chat.output_wanted or model.output_limit, model.output_limit),
        prices=model.prices,
    )
    reservation = reserve(asked=asked, plan=PlanCaps.of(caller), now=now)
    release_connection()
    return Call(
        caller=caller, chat=chat, model=model, reservation=reservation, input_estimate=estimate
    )
