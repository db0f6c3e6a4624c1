"""A call as a story: when what happened and what each token cost, from its record alone, for ``call.html`` to tell."""

from datetime import datetime
from typing import Any

from accounts.models import Session
from config.console.tables import Chip
from usage.admin.attempts import BY_ATTEMPT, Tried, cause, ends_by_attempt, tried
from usage.admin.call_log.ends import ENDS
from usage.costs import MILLION
from usage.models import Budget, MonthlyUsage, UsageRecord
from usage.models.failures import Failures

TIMES = (
    "first_byte_at",
    "first_output_at",
    "told_to_end_at",
    "client_left_at",
    "checkpoint_at",
    "settled_at",
)
# Seconds within which two instants are one to a reader.
SAME = 0.01
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
    return Chip("watch", "Ending") if call.told_to_end_at else Chip("running", "Running")


def seconds(call: UsageRecord, until: datetime | None) -> float | None:
    """From its admission until then."""
    return None if until is None else max(0.0, (until - call.opened_at).total_seconds())


def story(call: UsageRecord, *, now: datetime) -> dict[str, Any]:
    """Returns the story of a call for its page; times are seconds since its admission."""
    attempts, problem = tried(call), Failures.read(call.failures).problem
    return {
        "state": state_of(call, now=now),
        **_times(call, attempts, now=now),
        "attempts": [
            (seconds(call, each.asked_at), seconds(call, each.ended_at), each) for each in attempts
        ],
        "cause": cause(call),
        "problem": problem,
        # On a record of before.
        "is_unexplained": call.end in BY_ATTEMPT
        and not (problem or attempts or call.output_tokens),
        "session": Session.objects.filter(pk=call.session_id).first() if call.session_id else None,
        "labels": labels_of(call),
        "bill": _bill(call),
        "counted_how": COUNTED.get(call.source, ""),
        "charged": call.input_tokens + call.output_tokens,
        "back": max(0, call.reserved_input - call.input_tokens),
        "back_out": max(0, call.reserved_output - call.output_tokens),
        "month": MonthlyUsage.objects.filter(user=call.user_id, period=call.period).first(),
        "budget": Budget.objects.filter(client=call.client_id, period=call.period).first(),
    }


def _times(call: UsageRecord, attempts: list[Tried], *, now: datetime) -> dict[str, Any]:
    """Returns when what happened, the speed of the output, and the parts of the whole time."""
    at = {name: seconds(call, getattr(call, name)) for name in TIMES}
    byte, output = at["first_byte_at"], at["first_output_at"]
    is_over = ends_by_attempt(call, attempts)
    end = seconds(call, call.settled_at or now) or 0.0
    sent = seconds(call, attempts[-1].ended_at) or 0.0 if attempts else 0.0
    # The last attempt of a failed call has all of the time behind those before it.
    sent = end if is_over else min(end, sent)
    first = end if output is None and byte is None else max(sent, min(end, output or byte or 0.0))
    lasted = end - (first if call.streamed else sent)
    return {
        "at": at,
        "is_over": is_over,
        "sent": sent,
        "waited": None if byte is None or is_over else max(0.0, byte - sent),
        # Mostly the first byte and the first output are one.
        "begins_with_output": byte is None or (output is not None and output - byte < SAME),
        "took": end,
        "speed": call.output_tokens / lasted if call.settled_at and lasted > 0 else None,
        "parts": _parts(call, attempts, sent=sent, first=first, end=end),
    }


def labels_of(call: UsageRecord) -> list[tuple[str, Any]]:
    """The purpose of the call in its caller's words, by name."""
    given = call.labels or {}
    named = given.get("metadata")
    pairs = [("user", given["user"])] if given.get("user") else []
    return pairs + (list(named.items()) if isinstance(named, dict) else [])


def _parts(
    call: UsageRecord, attempts: list[Tried], *, sent: float, first: float, end: float
) -> list[tuple[str, str, float, float, float]]:
    """The parts of the time: the kind, a name, its seconds, and its place and width in percent."""
    spans = []
    asked = seconds(call, attempts[0].asked_at) or 0.0 if attempts else 0.0
    if asked >= SAME:
        spans.append(("second", "admission", min(end, asked), 0.0))
    for each in attempts:
        begin = min(end, seconds(call, each.asked_at) or 0.0)
        lasted = min(end - begin, each.seconds)
        spans.append(("errors", f"{each.provider} failed after", lasted, begin))
    spans += [("second", "waiting", first - sent, sent), ("first", "answering", end - first, first)]
    return [
        (kind, name, lasted, 100 * begin / end, 100 * lasted / end)
        for kind, name, lasted, begin in spans
        if lasted > 0
    ]


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
