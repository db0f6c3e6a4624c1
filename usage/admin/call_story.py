"""A call as a story: when what happened and what each token cost, from its record alone, for ``call.html`` to tell."""

from datetime import datetime
from typing import Any

from config.console.tables import Chip
from usage.costs import MILLION
from usage.models import Budget, MonthlyUsage, UsageRecord
from usage.spending.statements import attempts_of

End = UsageRecord.End
ENDS: dict[str, Chip] = {
    End.DONE: Chip("well", "Done"),
    End.CLIENT_GONE: Chip("watch", "Disconnected"),
    End.PROVIDER_FAILED: Chip("stopped", "Failed"),
    End.UNREAD: Chip("stopped", "Not readable"),
    End.TIMEOUT: Chip("stopped", "Timed out"),
    End.STOPPED: Chip("stopped", "Stopped"),
    End.CRASHED: Chip("stopped", "Worker died"),
}

# The way in which the settled numbers became known.
COUNTED: dict[str, str] = {
    UsageRecord.Source.PROVIDER: "Counted by the provider.",
    UsageRecord.Source.COUNTED: "Counted during delivery.",
    UsageRecord.Source.ESTIMATED: "Estimated.",
}


def state_of(call: UsageRecord, *, now: datetime) -> Chip:
    if call.state == UsageRecord.State.SETTLED:
        return ENDS[call.end]
    if call.expires_at <= now:
        return Chip("stopped", "Died, not settled yet")
    return Chip("watch", "Told to end") if call.told_to_end_at else Chip("running", "Running")


def seconds(call: UsageRecord, until: datetime | None) -> float | None:
    """From its admission until then."""
    return None if until is None else max(0.0, (until - call.opened_at).total_seconds())


def story(call: UsageRecord, *, now: datetime) -> dict[str, Any]:
    """Returns the story of a call for its page; times are seconds since its admission."""
    times = ("first_byte_at", "told_to_end_at", "client_left_at", "checkpoint_at", "settled_at")
    at = {name: seconds(call, getattr(call, name)) for name in times}
    attempts = [
        (seconds(call, each.asked_at), seconds(call, each.abandoned_at), each)
        for each in attempts_of([call])[call.pk]
    ]
    end = seconds(call, call.settled_at or now) or 0.0
    sent = min(end, attempts[-1][1] or 0.0 if attempts else 0.0)
    first = min(end, end if at["first_byte_at"] is None else at["first_byte_at"])
    spans = (("errors", sent, 0.0), ("second", first - sent, sent), ("first", end - first, first))
    return {
        "state": state_of(call, now=now),
        "at": at,
        "attempts": attempts,
        "sent": sent,
        "waited": first - sent,
        "took": end,
        "speed": call.output_tokens / (end - first) if call.streamed and first < end else None,
        "bill": _bill(call),
        # The kind of each part of the time, its seconds, and both places in percent.
        "parts": [
            (kind, lasted, 100 * begin / end, 100 * lasted / end)
            for kind, lasted, begin in spans
            if lasted > 0
        ],
        "counted_how": COUNTED.get(call.source, ""),
        "charged": call.input_tokens + call.output_tokens,
        "back": max(0, call.reserved_input - call.input_tokens),
        "back_out": max(0, call.reserved_output - call.output_tokens),
        "month": MonthlyUsage.objects.filter(user=call.user_id, period=call.period).first(),
        "budget": Budget.objects.filter(client=call.client_id, period=call.period).first(),
    }


def _bill(call: UsageRecord) -> list[tuple[str, int, int | None, int | None]]:
    """Lines of tokens with their number, price and cost."""
    cached, written = call.cached_input_tokens, call.cache_write_tokens
    lines = (
        ("Input", call.input_tokens - cached - written, call.input_price),
        ("Input, cached", cached, call.cached_input_price or call.input_price),
        ("Written to cache", written, call.cache_write_price or call.input_price),
        ("Output", call.output_tokens, call.output_price),
    )
    return [
        (name, number, price, None if price is None else number * price // MILLION)
        for name, number, price in lines
        if number or name in {"Input", "Output"}
    ]
