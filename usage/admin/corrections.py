"""The action that lowers what a call was charged, on the call's page."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.http import HttpRequest

from config.console.actions import Action, ReasonForm, Result
from usage.models import UsageRecord
from usage.spending.corrections import lower_charge


class ChargeForm(ReasonForm):
    input_tokens = forms.IntegerField(min_value=0)
    output_tokens = forms.IntegerField(min_value=0)


class LowerCharge(Action):
    name = "lower"
    label = "Lower charge"
    question = "Lower the charge of this call?"
    form_class = ChargeForm
    destructive = True

    def available(self, target: UsageRecord, *, by: HttpRequest) -> bool:
        is_settled = target.state == UsageRecord.State.SETTLED
        return is_settled and target.input_tokens + target.output_tokens > 0

    def effects(self, target: UsageRecord) -> Iterable[str]:
        yield "The month's, day's and key's tokens, the cost and the client's statement are lowered with it."
        yield "It cannot be raised again. The call's page keeps the original charge."

    def initial(self, target: UsageRecord, *, by: HttpRequest) -> dict[str, Any]:
        return {"input_tokens": target.input_tokens, "output_tokens": target.output_tokens}

    def do(self, target: UsageRecord, **inputs: Any) -> Result:
        call = lower_charge(record_id=target.pk, **inputs)
        charged = f"{call.input_tokens:,} tokens of input and {call.output_tokens:,} of output"
        return Result(f"The call is now charged {charged}.", call)
