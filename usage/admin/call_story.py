"""A call as a story: what happened when, and what it cost, from its record alone."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from config.console.tables import Chip, Column, Row, Table
from config.money import in_dollars
from usage.costs import MILLION
from usage.models import Budget, MonthlyUsage, UsageRecord
from usage.statements import Attempt, attempts_of

End = UsageRecord.End
ENDS: dict[str, Chip] = {
    End.DONE: Chip("well", "Done"),
    End.CLIENT_GONE: Chip("watch", "Disconnected"),
    End.PROVIDER_FAILED: Chip("stopped", "Failed"),
    End.TIMEOUT: Chip("stopped", "Timed out"),
    End.STOPPED: Chip("stopped", "Stopped"),
    End.CRASHED: Chip("stopped", "Worker died"),
}


class Step(NamedTuple):
    """Something that happened: its seconds since the request, its shape, and what it was."""

    after: str
    kind: str
    what: str
    detail: str = ""


class Part(NamedTuple):
    """A part of a call's time, in percent of it."""

    begin: float
    width: float
    kind: str
    words: str


def state_of(call: UsageRecord, *, now: datetime) -> Chip:
    if call.state == UsageRecord.State.SETTLED:
        return ENDS[call.end]
    if call.expires_at <= now:
        return Chip("stopped", "Died, not settled yet")
    return Chip("watch", "Told to end") if call.told_to_end_at else Chip("running", "Running")


def seconds(call: UsageRecord, *, now: datetime) -> float:
    """How long it took, or has taken so far."""
    return max(0.0, ((call.settled_at or now) - call.opened_at).total_seconds())


def told(call: UsageRecord, *, now: datetime) -> dict[str, Any]:
    """What the page of a call tells of it."""
    attempts = attempts_of([call])[call.pk]
    first_byte = call.first_byte_at and (call.first_byte_at - call.opened_at).total_seconds()
    answering = seconds(call, now=now) - (first_byte or 0)
    month = MonthlyUsage.objects.filter(user=call.user_id, period=call.period).first()
    return {
        "state": state_of(call, now=now),
        "took": f"{seconds(call, now=now):.2f} s",
        "cost": "" if call.cost is None else in_dollars(call.cost, 6),
        "first_byte": first_byte and f"{first_byte:.2f} s",
        "speed": call.streamed and first_byte and round(call.output_tokens / max(answering, 0.01)),
        "attempts": attempts,
        "steps": list(_steps(call, attempts)),
        "bill": _bill(call, attempts),
        "parts": list(_parts(call, attempts, now=now)),
        "month": month,
        "budget": Budget.objects.filter(client=call.client_id, period=call.period).first(),
    }


def _steps(call: UsageRecord, attempts: list[Attempt]) -> Iterator[Step]:
    def after(at: datetime) -> str:
        return f"{max(0.0, (at - call.opened_at).total_seconds()):.2f}"

    how = "streamed" if call.streamed else "in one piece"
    counted = (
        "" if call.counted_input is None else f", prompt counted as {call.counted_input:,} tokens"
    )
    yield Step("0.00", "", "Asked", f"{call.model}, {how}{counted}")
    held = f"Held {call.reserved_input:,} tokens in and {call.reserved_output:,} out."
    yield Step("0.00", "well", "Admitted", held)
    sent, words = call.opened_at, "Sent to"
    for each in attempts:
        yield Step(after(each.asked_at), "", f"{words} {each.provider}")
        said = "Reported" if each.is_reported else "May have made"
        cost = "no price" if each.cost is None else in_dollars(each.cost, 6)
        made = f"{said} {each.input:,} in and {each.output:,} out, {cost}: the client's money."
        yield Step(after(each.abandoned_at), "refused", f"{each.provider} was abandoned", made)
        sent, words = each.abandoned_at, "Failed over to"
    yield Step(after(sent), "watch" if attempts else "", f"{words} {call.provider}")
    if call.first_byte_at:
        waited = (call.first_byte_at - sent).total_seconds()
        yield Step(after(call.first_byte_at), "", "First byte", f"{waited:.2f} s after it was sent")
    if call.told_to_end_at:
        yield Step(after(call.told_to_end_at), "refused", "An operator told it to end")
    if call.client_left_at:
        yield Step(
            after(call.client_left_at), "watch", "Caller disconnected", "Read on to its end."
        )
    if call.settled_at is None:
        if call.checkpoint_at:
            far = f"{call.checkpoint_input or 0:,} in and {call.checkpoint_output or 0:,} out"
            yield Step(after(call.checkpoint_at), "", "Running", f"{far} when last heard of")
        return
    end = ENDS[call.end]
    kind = {"well": "well", "watch": "watch"}.get(end.kind, "refused")
    yield Step(after(call.settled_at), kind, end.word, f"{call.output_tokens:,} tokens out")
    back = [
        max(0, held - used)
        for held, used in (
            (call.reserved_input, call.input_tokens),
            (call.reserved_output, call.output_tokens),
        )
    ]
    given = f"By {call.get_source_display()}. {back[0]:,} in and {back[1]:,} out given back."
    yield Step(after(call.settled_at), "well", "Settled", given)


def _bill(call: UsageRecord, attempts: list[Attempt]) -> Table:
    plain = call.input_tokens - call.cached_input_tokens - call.cache_write_tokens
    lines = [
        ("Input", plain, call.input_price),
        ("Input, cached", call.cached_input_tokens, call.cached_input_price or call.input_price),
        ("Written to cache", call.cache_write_tokens, call.cache_write_price or call.input_price),
        ("Output", call.output_tokens, call.output_price),
    ]
    rows = [
        Row([name, number, _price(price), _price(price and number * price // MILLION, 6)])
        for name, number, price in lines
        if number or name in {"Input", "Output"}
    ]
    if call.reasoning_tokens:
        rows.append(Row(["of it reasoning", call.reasoning_tokens, "", ""]))
    for each in attempts:
        used = each.input + each.output
        rows.append(Row([f"Abandoned at {each.provider}", used, "", _price(each.cost, 6)]))
    total = call.input_tokens + call.output_tokens
    rows.append(Row(["Total", total, "", _price(call.cost, 6) or "no price"], mark="total"))
    if first := call.as_settled:
        was = first["input_tokens"] + first["output_tokens"]
        of = f"{first['input_tokens']:,} in, {first['output_tokens']:,} out"
        rows.append(Row([f"Before it was lowered: {of}", was, "", _price(first["cost"], 6)]))
    heads = ("Count", "$ per million", "$")
    return Table([Column("Tokens"), *(Column(each, "number") for each in heads)], rows)


def _price(amount: int | None, places: int = 2) -> str:
    return "" if amount is None else in_dollars(amount, places).removeprefix("$")


def _parts(call: UsageRecord, attempts: list[Attempt], *, now: datetime) -> Iterator[Part]:
    """The call's time: attempts that were abandoned, waiting, and the answer."""
    whole = seconds(call, now=now) or 1
    sent = attempts[-1].abandoned_at if attempts else call.opened_at
    end = call.settled_at or now
    first = min(call.first_byte_at or end, end)
    spans = (
        ("errors", "abandoned", call.opened_at, sent),
        ("second", "waiting", sent, first),
        ("first", "answering", first, end),
    )
    for kind, words, since, until in spans:
        lasted = (until - since).total_seconds()
        if lasted > 0:
            begin = 100 * (since - call.opened_at).total_seconds() / whole
            yield Part(
                round(begin, 2), round(100 * lasted / whole, 2), kind, f"{words} {lasted:.2f} s"
            )
