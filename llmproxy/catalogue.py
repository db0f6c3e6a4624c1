"""Finds the models that a caller may use."""

from typing import NamedTuple

from django.conf import settings

from config.api.problems import Fault, NotFound
from licensing.callers import Caller
from licensing.permissions import NotEntitled
from llmproxy.estimates import Measure
from llmproxy.models import LanguageModel, Route, tokenizer_of
from usage.caps import UNKNOWN, Prices


class Choice(NamedTuple):
    """The model of a call. Limits are in tokens; no ``image_tokens`` means the provider's default.

    ``provider_name`` and ``prices`` are those of its first route, ``measures`` those of all.
    """

    name: str
    provider_name: str
    output_limit: int
    image_tokens: int | None
    prices: Prices
    measures: tuple[Measure, ...]


def choose(name: str | None, *, caller: Caller) -> Choice:
    """Returns the model of a call; without a name, the default one.

    Raises ``NotFound`` for a model that is unknown or switched off, ``NotEntitled`` for a model of other plans.
    """
    wanted = name or settings.LLM_DEFAULT_MODEL
    # One row for each plan and route of the model.
    rows = list(
        LanguageModel.objects.filter(name=wanted)
        .order_by("routes__order", "routes__id")
        .values_list(*_COLUMNS, named=True)
    )
    if not rows and wanted == settings.LLM_DEFAULT_MODEL:
        default = _default()
        return Choice(
            default.name,
            default.provider_name,
            default.output_limit,
            default.image_tokens,
            UNKNOWN,
            (_measure_of(default.provider_name),),
        )
    if not rows or not rows[0].is_on:
        fault = Fault("/model", "unknown", "There is no model of this name.")
        raise NotFound(fault.detail, errors=[fault])
    if not {row.plans for row in rows} & {None, caller.plan_id}:
        raise NotEntitled("Your plan does not include this model.")
    first = rows[0]
    # A release without routes may have added the model.
    provider_name = first.routes__provider_name or first.provider_name
    return Choice(
        first.name,
        provider_name,
        first.output_limit,
        first.image_tokens,
        Prices(
            first.routes__input_price, first.routes__cached_input_price, first.routes__output_price
        ),
        tuple(
            dict.fromkeys(
                _measure_of(provider_name)
                if row.routes__tokenizer is None
                else Measure(row.routes__tokenizer, row.routes__token_factor)
                for row in rows
            )
        ),
    )


_COLUMNS = (
    "name",
    "provider_name",
    "output_limit",
    "image_tokens",
    "is_on",
    "plans",
    "routes__provider_name",
    "routes__tokenizer",
    "routes__token_factor",
    "routes__input_price",
    "routes__cached_input_price",
    "routes__output_price",
)


def _measure_of(provider_name: str) -> Measure:
    """The measure of a model without a route."""
    return Measure(tokenizer_of(provider_name), Route.FIRST_FACTOR)


def offered(*, caller: Caller) -> list[LanguageModel]:
    """The models that a caller may use, by name."""
    rows = list(LanguageModel.objects.prefetch_related("plans"))
    models = [row for row in rows if row.is_on and _allows(row, caller)]
    if all(row.name != settings.LLM_DEFAULT_MODEL for row in rows):
        models.append(_default())
    return sorted(models, key=lambda each: each.name)


def default_is_off() -> bool:
    """Whether calls that name no model are refused. No edit causes it, but another ``LLM_DEFAULT_MODEL`` can."""
    return LanguageModel.objects.filter(name=settings.LLM_DEFAULT_MODEL, is_on=False).exists()


def default_model_warning() -> str | None:
    """A warning about the default model for operators; None where its row is on and for every plan."""
    name = settings.LLM_DEFAULT_MODEL
    row = LanguageModel.objects.filter(name=name).prefetch_related("plans").first()
    if row is None:
        limit = _default().output_limit
        return (
            f"LLM_DEFAULT_MODEL is {name}, which has no row here: every plan may use it, with up to {limit:,} tokens "
            "of output, and its calls have no prices and count for no budget. Add a row of that name to change this."
        )
    if not row.is_on:
        return f"LLM_DEFAULT_MODEL is {name}, which is off: calls that name no model are refused."
    if row.plans.all():
        return f"LLM_DEFAULT_MODEL is {name}, which is for some plans only: others have to name a model."
    return None


def _allows(model: LanguageModel, caller: Caller) -> bool:
    plans = {plan.pk for plan in model.plans.all()}
    return not plans or caller.plan_id in plans


def _default() -> LanguageModel:
    """The default model of the settings, for as long as it has no row."""
    name = settings.LLM_DEFAULT_MODEL
    return LanguageModel(name=name, provider_name=name)
