"""Finds the models that a caller may use."""

from decimal import Decimal
from typing import NamedTuple

from django.conf import settings

from config.api.problems import Fault, NotFound
from config.db.batching import BatchedStatement
from licensing.callers import Caller
from licensing.permissions import NotEntitled
from llmproxy.estimates import Measure
from llmproxy.models import LanguageModel, Route, tokenizer_of
from usage.caps import UNKNOWN, Prices


class UnknownModel(NotFound):
    """No model of the name that a call gives."""

    sdk_code = "model_not_found"


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

    Raises ``UnknownModel`` for a model that is unknown or switched off, ``NotEntitled`` for a model of other plans.
    """
    wanted = name or settings.LLM_DEFAULT_MODEL
    row = _MODEL.row((wanted,))
    if row is None and wanted == settings.LLM_DEFAULT_MODEL:
        default = _default()
        return Choice(
            default.name,
            default.provider_name,
            default.output_limit,
            default.image_tokens,
            UNKNOWN,
            (_measure_of(default.provider_name),),
        )
    found = _Found(*row) if row else None
    if found is None or not found.is_on:
        fault = Fault("/model", "unknown", "There is no model of this name.")
        raise UnknownModel(
            f"There is no model {wanted!r}. GET /v1/llm/models lists those of your plan.",
            errors=[fault],
        )
    if found.plans and caller.plan_id not in found.plans:
        raise NotEntitled("Your plan does not include this model.")
    # A release without routes may have added the model.
    measures = tuple(dict.fromkeys(map(Measure, found.tokenizers or (), found.factors or ())))
    return Choice(
        wanted,
        found.provider_name,
        found.output_limit,
        found.image_tokens,
        Prices(found.input_price, found.cached_input_price, found.output_price),
        measures or (_measure_of(found.provider_name),),
    )


class _Found(NamedTuple):
    """A model with its plans (none: every plan) and its routes; names and prices are those of the first route."""

    is_on: bool
    output_limit: int
    image_tokens: int | None
    plans: list[int]
    provider_name: str
    input_price: int | None
    cached_input_price: int | None
    output_price: int | None
    tokenizers: list[str] | None
    factors: list[Decimal] | None


# Every call makes this query; the ORM takes longer to write it than the database to answer it.
_MODEL = BatchedStatement(
    """
SELECT model.is_on, model.output_limit, model.image_tokens,
       ARRAY(SELECT plan_id FROM llmproxy_languagemodel_plans WHERE languagemodel_id = model.id),
       COALESCE(routes.names[1], model.provider_name),
       routes.input[1], routes.cached[1], routes.output[1], routes.tokenizers, routes.factors
FROM llmproxy_languagemodel AS model
CROSS JOIN LATERAL (
    SELECT array_agg(provider_name ORDER BY "order", id) AS names,
           array_agg(input_price ORDER BY "order", id) AS input,
           array_agg(cached_input_price ORDER BY "order", id) AS cached,
           array_agg(output_price ORDER BY "order", id) AS output,
           array_agg(tokenizer ORDER BY "order", id) AS tokenizers,
           array_agg(token_factor ORDER BY "order", id) AS factors
    FROM llmproxy_route WHERE model_id = model.id
) AS routes
WHERE model.name = %s
"""
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
