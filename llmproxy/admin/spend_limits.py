"""The page of spending limits, and the actions that set them and let calls pass."""

from collections.abc import Iterable, Iterator
from datetime import UTC, date
from decimal import Decimal
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from config.console.actions import Action, ReasonForm, Result
from config.console.base import ConsoleAdmin
from config.console.lists.columns import moment
from config.platform.money import DOLLAR, decimal, readable_dollars
from llmproxy.models import Provider, Route
from usage.models import SpendLimit
from usage.spending.budgets import MOST
from usage.spending.spend_limits import excess, hold_again, let_calls_pass, set_spend_limit


class DollarField(forms.DecimalField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            required=False,
            min_value=Decimal("0.01"),
            max_value=decimal(MOST),
            decimal_places=2,
            help_text="Empty: no limit.",
            **kwargs,
        )


class AmountsForm(ReasonForm):
    daily = DollarField(label="Dollars per day (UTC)")
    monthly = DollarField(label="Dollars per calendar month (UTC)")


class ProviderField(forms.ChoiceField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, choices=self._names, **kwargs)

    @staticmethod
    def _names() -> list[tuple[str, str]]:
        names = Provider.objects.values_list("name", flat=True)
        return [("", "All providers together"), *((each, each) for each in names)]


class LimitForm(AmountsForm):
    provider = ProviderField()

    field_order = ("provider",)

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if not self.errors and given["daily"] is given["monthly"] is None:
            self.add_error("daily", "Give an amount per day, per month, or both.")
        if SpendLimit.objects.filter(provider=given.get("provider")).exists():
            self.add_error("provider", "It already has a limit. Change its amounts instead.")
        return given


class SetAmounts(Action):
    name = "amounts"
    label = "Set amounts"
    question = "Set the spending limit of {name}?"
    form_class: ClassVar[type[Any]] = AmountsForm

    def effects(self, target: SpendLimit | None) -> Iterable[str]:
        yield "Operators are notified at 80 %."
        yield "Once it is reached, no new model call starts (spend_stopped) until the day or month ends."
        yield "Calls go on to another provider where only one is stopped. Running calls end as usual and are charged."
        provider = target.provider if target else ""
        yield from _passed_by(provider)
        yield from _not_counted(provider)

    def initial(self, target: SpendLimit | None, *, by: HttpRequest) -> dict[str, Any]:
        if target is None:
            return {"provider": by.GET.get("provider", "")}
        amounts = {"daily": target.daily, "monthly": target.monthly}
        return {name: f"{decimal(each):.2f}" for name, each in amounts.items() if each is not None}

    def do(
        self,
        target: SpendLimit | None,
        *,
        daily: Decimal | None,
        monthly: Decimal | None,
        provider: str = "",
        **inputs: Any,
    ) -> Result:
        limit = set_spend_limit(
            provider=target.provider if target else provider,
            daily=None if daily is None else int(daily * DOLLAR),
            monthly=None if monthly is None else int(monthly * DOLLAR),
            **inputs,
        )
        if limit is None:
            return Result("There is no limit now.", None)
        return Result(f"The spending limit of {limit} is set.", limit)


class AddLimit(SetAmounts):
    name = "add"
    label = "Set spending limit"
    form_class: ClassVar[type[Any]] = LimitForm


class PassForm(ReasonForm):
    # The day that was shown: a page that was opened before midnight lets nothing pass after it.
    day = forms.DateField(widget=forms.HiddenInput)

    def clean_day(self) -> date:
        day: date = self.cleaned_data["day"]
        if day != timezone.now().astimezone(UTC).date():
            raise forms.ValidationError("That day has ended (UTC). Open the page again.")
        return day


class LetCallsPass(Action):
    name = "pass"
    label = "Let calls pass today"
    question = "Let calls pass the spending limit of {name} today?"
    form_class = PassForm
    destructive = True

    def initial(self, target: SpendLimit, *, by: HttpRequest) -> dict[str, Any]:
        return {"day": timezone.now().astimezone(UTC).date()}

    def available(self, target: SpendLimit, *, by: HttpRequest) -> bool:
        return target.stopped_until(timezone.now()) is not None

    def effects(self, target: SpendLimit) -> Iterable[str]:
        yield "New model calls start at once, and nothing limits what they cost until midnight (UTC)."
        yield "After midnight the daily limit starts again, and a monthly limit that is reached stops calls again."
        if target.provider and SpendLimit.objects.filter(provider="").exists():
            yield "The limit of all providers together still applies."

    def do(self, target: SpendLimit, *, day: date, **inputs: Any) -> Result:
        limit = let_calls_pass(limit_id=target.pk, **inputs)
        return Result("Calls pass until midnight (UTC).", limit, undo=(limit, "hold"))


class HoldAgain(Action):
    name = "hold"
    label = "Enforce again"
    question = "Enforce the spending limit of {name} again?"

    def available(self, target: SpendLimit, *, by: HttpRequest) -> bool:
        return target.passes(timezone.now())

    def effects(self, target: SpendLimit) -> Iterable[str]:
        yield "If the limit is reached, no new model call starts from now on. Running calls end as usual."

    def do(self, target: SpendLimit, **inputs: Any) -> Result:
        return Result("The limit applies again.", hold_again(limit_id=target.pk, **inputs))


def _passed_by(provider: str) -> Iterator[str]:
    found = excess(provider, now=timezone.now())
    yield (
        f"It can be exceeded by what is spent in 70 seconds, {readable_dollars(found.unseen)} at the pace of the "
        f"costliest minute in the week's busiest hours, and by running calls, {readable_dollars(found.running)} now."
    )


def _not_counted(provider: str) -> Iterator[str]:
    routes = Route.objects.filter(input_price=None, provider__is_on=True, model__is_on=True)
    if provider:
        routes = routes.filter(provider__name=provider)
    names = sorted(set(routes.values_list("model__name", flat=True)))
    if names:
        yield f"Calls to models without prices are not counted: {', '.join(names)}."


@admin.register(SpendLimit)
class SpendLimitAdmin(ConsoleAdmin):
    row_actions = (SetAmounts(), LetCallsPass(), HoldAgain())
    add_action = AddLimit()
    list_display = ("applies_to", "today", "this_month", "state")
    fields = (*list_display, "unpriced", moment("counted_at"))
    readonly_fields = (*list_display, "unpriced")

    @admin.display(description="applies to", ordering="provider")
    def applies_to(self, limit: SpendLimit) -> str:
        return limit.title

    @admin.display
    def today(self, limit: SpendLimit) -> str:
        return _spent(limit, "day", limit.daily)

    @admin.display
    def this_month(self, limit: SpendLimit) -> str:
        return _spent(limit, "month", limit.monthly)

    @admin.display
    def state(self, limit: SpendLimit) -> str:
        now = timezone.now()
        if limit.passes(now):
            return "Calls pass today"
        until = limit.stopped_until(now)
        return f"Stopped until {until:%-d %B, %H:%M} UTC" if until else "Calls pass"

    @admin.display(description="not counted")
    def unpriced(self, limit: SpendLimit) -> str:
        return " ".join(_not_counted(limit.provider))


def _spent(limit: SpendLimit, name: str, amount: int | None) -> str:
    """The spent part of an amount, as last counted; none on a day or in a month that was not counted yet."""
    if amount is None:
        return "no limit"
    span = next((each for each in limit.spans(timezone.now()) if each.name == name), None)
    spent = span.spent if span else 0
    return f"{readable_dollars(spent)} of {readable_dollars(amount)} ({100 * spent // amount:,} %)"
