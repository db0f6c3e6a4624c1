"""Corrections of charges: a settled call costs less, with its day and its totals."""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import BigIntegerField, Case, F, When

from accounts.audit import Actor, reason_faults, record
from config.platform.problems.problem import Fault, InvalidRequest
from usage.costs import Spent
from usage.models import KeyMonth, MonthlyUsage, UsageRecord
from usage.settlement import prices_of
from usage.spending.daily import count_again

# The columns of what a call is charged, with their members of ``Spent``.
_CHARGED = {
    "input_tokens": "input",
    "cached_input_tokens": "cached_input",
    "cache_write_tokens": "cache_write",
    "output_tokens": "output",
    "reasoning_tokens": "reasoning",
}


def lower_charge(
    *, record_id: UUID, input_tokens: int, output_tokens: int, reason: str, by: Actor, now: datetime
) -> UsageRecord:
    """Charges a settled call fewer tokens, at its prices, such as where its provider reported too much.

    The totals of its person, the day and its key follow; statements and budgets are sums of records. The record keeps
    its first charge. Raises ``InvalidRequest`` without a reason, for more tokens than it is charged, or for as many.
    """
    with transaction.atomic():
        # In the order of a settlement: the record, its person's month, its key's.
        settled = UsageRecord.objects.filter(state=UsageRecord.State.SETTLED)
        call = settled.select_for_update(no_key=True).get(pk=record_id)
        before, capped = _charge(call), _towards_caps(call)
        less = call.output_tokens - output_tokens
        _check_lower(call, input_tokens=input_tokens, output_tokens=output_tokens, reason=reason)
        _lower(call, input_tokens=input_tokens, output_tokens=output_tokens)
        call.as_settled = call.as_settled or before
        call.save(update_fields=[*before, "capped_input", "as_settled"])
        less_capped = capped - _towards_caps(call)
        # Before the person's month is locked, for which calls would wait too.
        count_again(call)
        MonthlyUsage.objects.filter(user=call.user_id, period=call.period).update(
            input_used=F("input_used") - less_capped,
            output_used=F("output_used") - less,
            day_used=Case(
                When(day=call.day, then=F("day_used") - less_capped - less),
                default=F("day_used"),
                output_field=BigIntegerField(),
            ),
        )
        if call.key_id is not None:
            months = KeyMonth.objects.filter(key_id=call.key_id, period=call.period)
            months.update(output_used=F("output_used") - less)
        after = _charge(call)
        record("charge:lowered", call, by=by, now=now, reason=reason, before=before, after=after)
    return call


def _check_lower(call: UsageRecord, *, input_tokens: int, output_tokens: int, reason: str) -> None:
    faults, present = reason_faults(reason), (call.input_tokens, call.output_tokens)
    given = {"/input_tokens": input_tokens, "/output_tokens": output_tokens}
    for (place, number), most in zip(given.items(), present, strict=True):
        if not 0 <= number <= most:
            faults.append(
                Fault(place, "invalid", f"From 0 to the {most:,} that it is charged now.")
            )
    if (input_tokens, output_tokens) == present:
        faults.append(Fault("", "required", "The call already costs this. Enter a smaller number."))
    if faults:
        raise InvalidRequest(errors=faults)


def _lower(call: UsageRecord, *, input_tokens: int, output_tokens: int) -> None:
    """Sets fewer tokens, each part of them at most what it was."""
    cached = min(call.cached_input_tokens, input_tokens)
    if call.capped_input is not None:
        call.capped_input = input_tokens - cached * (100 - call.cached_input_percent) // 100
    call.input_tokens, call.cached_input_tokens = input_tokens, cached
    call.cache_write_tokens = min(call.cache_write_tokens, input_tokens - cached)
    call.output_tokens = output_tokens
    call.reasoning_tokens = min(call.reasoning_tokens, output_tokens)
    spent = Spent(**{name: getattr(call, column) for column, name in _CHARGED.items()})
    call.cost = prices_of(call).cost(spent)


def _charge(call: UsageRecord) -> dict[str, int | None]:
    """Returns the charge of a call, by column."""
    return {name: getattr(call, name) for name in (*_CHARGED, "cost")}


def _towards_caps(call: UsageRecord) -> int:
    return call.input_tokens if call.capped_input is None else call.capped_input
