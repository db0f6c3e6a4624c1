"""A running call: its admission, the attempt that is under way, and its one settlement."""

import time
from collections.abc import Callable
from datetime import datetime
from threading import Lock
from uuid import UUID

from django.conf import settings

from config.platform.problems.problem import Problem
from llmproxy.calls.admission import Admission
from llmproxy.calls.attempt import Attempt
from llmproxy.calls.charge import charge, excess
from llmproxy.calls.outbox import Settled, settle_or_retry
from llmproxy.calls.quotations import without_quotations
from llmproxy.calls.stop import Stop, StopReason
from usage.caps import SoFar
from usage.costs import Abandoned, AskedRoute, Spent
from usage.limits import remaining_headers
from usage.models import UsageRecord
from usage.models.failures import NONE as NO_FAILURES
from usage.models.failures import FailedAttempt
from usage.settlement import Settlement

End = UsageRecord.End
# Called with each call that has ended, once and before its caller reads the end; composition registers them.
ended: list[Callable[["Call", Settlement], object]] = []


class Call:
    """Failover writes ``attempt``, ``abandoned``, ``failures``, the watch ``left_at`` and, where it cuts, ``stop``."""

    __slots__ = (
        "_lock",
        "_settled",
        "abandoned",
        "admission",
        "attempt",
        "began",
        "deadline",
        "failures",
        "has_left",
        "left_at",
        "room",
        "stop",
    )

    def __init__(self, admission: Admission, *, has_left: Callable[[], bool] = bool) -> None:
        self.admission = admission
        self.stop = Stop()
        # The check of a disconnected client, and the time at which the watch saw it (on the monotonic clock).
        self.has_left = has_left
        self.left_at: float | None = None
        self.attempt: Attempt | None = None
        # Gives back the room of a large answer (``bodies``), for which the call may have to wait.
        self.room: Callable[[], object] | None = None
        self.abandoned: tuple[Abandoned, ...] = ()
        self.failures = NO_FAILURES
        self.began = time.monotonic()
        self.deadline = self.began + settings.LLM_MAX_SECONDS
        self._settled: Settled | None = None
        self._lock = Lock()

    @property
    def id(self) -> UUID:
        return self.admission.reservation.record_id

    def begin(self, attempt: Attempt, *, after: Abandoned | None = None) -> None:
        """Makes an attempt the current one, and lists the one that was abandoned before it."""
        self.attempt = attempt
        if after is not None:
            self.abandoned += (after,)

    def note_failed(self, attempt: FailedAttempt) -> None:
        self.failures = self.failures.also(attempt)

    def cut(self, reason: StopReason, problem: Problem | None = None) -> None:
        """Ends the call from outside its relay; ``problem`` is for its caller. Only the first reason counts."""
        self.stop.set(reason, problem)
        if self.attempt is not None:
            self.attempt.close()

    def give_back_room(self) -> None:
        """For the end of a large answer. Idempotent."""
        room, self.room = self.room, None
        if room is not None:
            room()

    def settle(self, end: End, *, told: Problem | None = None) -> Settled:
        """Settles the call. Only the first end has an effect; ``told`` is the problem that its caller gets.

        While the database is unavailable, the same settlement is retried, and what is returned is set later.
        """
        with self._lock:
            if self._settled is None:
                self._settled = settle_or_retry(self._settlement(end, told))
                for note in ended:
                    note(self, self._settled.settlement)
            return self._settled

    @property
    def end(self) -> End | None:
        return None if self._settled is None else self._settled.settlement.end

    def advice(self) -> dict[str, str]:
        """The header that keeps SDKs from repeating a failed call by themselves, where a provider has answered it.

        They would repeat it twice, and each answer costs as much.
        """
        attempt = self.attempt
        has_answered = attempt is not None and attempt.has_answered
        was_reported = any(each.is_reported for each in self.abandoned)
        return {"x-should-retry": "false"} if has_answered or was_reported else {}

    def so_far(self) -> SoFar:
        """The charge if this process died now; unknown for a one-shot answer before its end."""
        attempt, spent = self.attempt, Spent()
        is_known = attempt is None or self.admission.request.stream
        if attempt is not None and is_known:
            # Without the unseen output, so that a silent stream is not saved again every few seconds.
            spent, _ = charge(self.admission, attempt.meter, attempt, End.CRASHED, None)
        return SoFar(
            self.id,
            spent.input if is_known else None,
            spent.output if is_known else None,
            None if attempt is None else attempt.meter.first_byte_at,
            self._asked(),
            self.abandoned,
            spent.cached_input,
            None if attempt is None else attempt.meter.first_output_at,
            self.failures,
        )

    def remaining(self, *, now: datetime) -> dict[str, str]:
        """The headers of the tokens left: after the settlement, or until then as before this call.

        The caps are those of the admission. With them stands the output limit, where it is lower than was asked for,
        or than the model's where nothing was, and the members that the model does not take.
        """
        reserved, headers = self.admission.reservation, {}
        wanted = self.admission.request.output_wanted
        if reserved.output_limit < (
            self.admission.model.output_limit if wanted is None else wanted
        ):
            headers["X-Output-Limit"] = str(reserved.output_limit)
        if self.attempt is not None and self.attempt.dropped:
            headers["X-Dropped-Members"] = ", ".join(self.attempt.dropped)
        after = self._settled.after if self._settled is not None else None
        month, day, cap = reserved.remaining_month, reserved.remaining_day, reserved.day_cap
        if after is not None:
            month, day = after.remaining_month, None if cap is None else cap - after.taken_today
        return headers | remaining_headers(month=month, day=day, day_cap=cap, now=now)

    def _settlement(self, end: End, told: Problem | None) -> Settlement:
        admission, attempt, failures = self.admission, self.attempt, self.failures
        spent, source, found = Spent(), UsageRecord.Source.COUNTED, None
        first_byte_at = first_output_at = None
        if attempt is not None:
            meter = attempt.meter
            spent, source = charge(admission, meter, attempt, end, time.monotonic())
            found, first_byte_at = excess(admission, meter), meter.first_byte_at
            first_output_at = meter.first_output_at
        if end == End.CRASHED and self.left_at is not None:
            # Charged by time as the end of a process, which is not why the answer was in the background.
            end = End.CLIENT_GONE
        if told is not None and end != End.CLIENT_GONE:
            detail = without_quotations(told.detail, request=admission.request)
            failures = failures.ending(told, detail=detail)
        return Settlement(
            self.id,
            admission.caller.user_id,
            spent,
            source,
            end,
            self._asked(),
            first_byte_at=first_byte_at,
            by_capped_key=admission.caller.key is not None,
            excess=found,
            abandoned=self.abandoned,
            first_output_at=first_output_at,
            failures=failures,
        )

    def _asked(self) -> AskedRoute:
        """Returns the current route of the call."""
        if self.attempt is None:
            first = self.admission.targets[0]
            return AskedRoute(first.provider, first.prices, self.admission.estimate.counted)
        target = self.attempt.target
        return AskedRoute(target.provider, target.prices, self.attempt.estimate.counted)
