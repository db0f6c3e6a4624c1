"""One call, from its admission to its settlement."""

import logging
import time
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Any
from uuid import UUID

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from config.database import release_connection
from config.problems import Problem
from licensing.callers import Caller
from llmproxy.catalogue import choose
from llmproxy.chat import Chat
from llmproxy.estimates import delivered_tokens, prompt_tokens
from llmproxy.models import LanguageModel
from llmproxy.providers import provider
from llmproxy.providers.protocol import Prompt, Reported
from usage.caps import Asked, PlanCaps, Reservation, reserve
from usage.models import UsageRecord
from usage.settlement import Spent, settle

log = logging.getLogger(__name__)

End = UsageRecord.End
# Waits before settling is tried again where the database is away; after them the worker's sweep has it.
SETTLE_WAITS = (0.1, 0.5, 2.0)
# Ends that are not the provider's: it was asked, and its work on the prompt has to be paid for.
LEFT = frozenset({End.CLIENT_GONE, End.STOPPED, End.CRASHED})


@dataclass(slots=True, kw_only=True)
class Call:
    """An admitted call. ``settle`` may be called from any place that ends it; the first counts."""

    caller: Caller
    chat: Chat
    model: LanguageModel
    reservation: Reservation
    input_estimate: int
    # What has been seen of the answer: that the provider set to work, its numbers, and what was delivered.
    began: bool = False
    reported: Reported | None = None
    # What the provider said of the prompt, where it did so before it reported the whole.
    prompt: Prompt | None = None
    deltas: int = 0
    size: int = 0
    # Why this call was ended from here, set by the watch over running calls.
    stopped: Problem | None = None
    end: UsageRecord.End | None = None
    settled: bool = False
    _lock: Any = field(default_factory=Lock)

    @property
    def id(self) -> UUID:
        return self.reservation.record_id

    def settle(self, end: UsageRecord.End) -> bool:
        """Settles to what the provider reported, else to what was delivered. The first end counts.

        False where the database stayed away; then the worker's sweep settles it.
        """
        with self._lock:
            if not self.settled:
                self.end = self.end or end
                spent, source = self._spent(self.end)
                self.settled = _persistently(self.id, spent=spent, source=source, end=self.end)
            return self.settled

    def _spent(self, end: UsageRecord.End) -> tuple[Spent, UsageRecord.Source]:
        output = delivered_tokens(deltas=self.deltas, size=self.size)
        if (known := self.reported) is not None:
            # A report in mid-answer says less than what has been delivered since.
            whole = end == End.DONE or known.output >= output
            spent = Spent(
                input=known.input,
                cached_input=known.cached_input,
                output=known.output if whole else output,
                reasoning=known.reasoning,
            )
            return spent, UsageRecord.Source.PROVIDER if whole else UsageRecord.Source.COUNTED
        if not self.began and end not in LEFT:
            # A provider that failed before its first byte is owed nothing, and neither are we.
            return Spent(), UsageRecord.Source.COUNTED
        prompt = self.prompt or Prompt(self.input_estimate)
        spent = Spent(input=prompt.input, cached_input=prompt.cached_input, output=output)
        return spent, UsageRecord.Source.COUNTED


def admit(*, caller: Caller, chat: Chat, request_id: str, now: datetime) -> Call:
    """Opens a record for a call and gives the connection back: nothing is held while waiting."""
    model = choose(chat.model, caller=caller)
    provider().check(chat)
    estimate = prompt_tokens(chat.members) + provider().prompt_overhead(chat)
    assert caller.client_id is not None
    asked = Asked(
        user_id=caller.user_id,
        client_id=caller.client_id,
        session_id=caller.session_id,
        model=model.name,
        provider=provider().name,
        request_id=request_id,
        streamed=chat.stream,
        input_estimate=estimate,
        output_wanted=min(chat.output_wanted or model.output_limit, model.output_limit),
    )
    reservation = reserve(asked=asked, plan=PlanCaps.of(caller), now=now)
    release_connection()
    return Call(
        caller=caller, chat=chat, model=model, reservation=reservation, input_estimate=estimate
    )


def _persistently(
    record_id: UUID, *, spent: Spent, source: UsageRecord.Source, end: UsageRecord.End
) -> bool:
    """Settles although the database may be restarting; False where it stayed away and the sweep has to."""
    for wait in (*SETTLE_WAITS, None):
        try:
            settle(record_id=record_id, spent=spent, source=source, end=end, now=timezone.now())
            return True
        except (OperationalError, InterfaceError):
            release_connection()
            if wait is None:
                log.exception("settlement_failed")
                return False
            time.sleep(wait)
        finally:
            release_connection()
    return False
