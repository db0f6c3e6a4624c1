"""Finds the models that a caller may use."""

from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from django.conf import settings

from config.api.problems import Fault, NotFound
from config.db.batching import BatchedStatement
from config.encryption import decrypt
from licensing.callers import Caller
from licensing.permissions import NotEntitled
from llmproxy.dialects.by_name import DIALECTS
from llmproxy.dialects.protocol import Dialect, ProviderUnavailable, Target
from llmproxy.models import LanguageModel, Provider, Route, key_place, tokenizer_of
from llmproxy.prompts.estimates import Measure
from llmproxy.requests.call_request import Surface
from usage.caps import Prices


class UnknownModel(NotFound):
    """No model of the name that a call gives."""

    sdk_code = "model_not_found"


def unknown_model(name: str) -> UnknownModel:
    fault = Fault("/model", "unknown", "There is no model of this name.")
    detail = f"There is no model {name!r}. GET /v1/llm/models lists those of your plan."
    return UnknownModel(detail, errors=[fault])


class Choice(NamedTuple):
    """The model of a call. Limits are in tokens; no ``image_tokens`` means the provider's default.

    ``targets`` are those of its routes that have the call's surface, the first to be asked first.
    """

    name: str
    output_limit: int
    image_tokens: int | None
    targets: tuple[Target, ...]


def choose(name: str | None, *, surface: Surface, caller: Caller) -> Choice:
    """Returns the model of a call; without a name, the default one.

    Raises ``UnknownModel`` for a model that is unknown or switched off, ``NotFound`` for one that is not on this
    surface, ``NotEntitled`` for a model of other plans, ``ProviderUnavailable`` where all its providers are off.
    """
    wanted = name or settings.LLM_DEFAULT_MODEL
    # PostgreSQL stores no NUL, so no model has one.
    row = None if "\0" in wanted else _MODEL.row((wanted,))
    if row is None and wanted == settings.LLM_DEFAULT_MODEL:
        default = _default()
        row = (True, default.output_limit, default.image_tokens, default.provider_name, [], [])
    found = _Found(*row) if row else None
    if found is None or not found.is_on:
        raise unknown_model(wanted)
    if found.plans and caller.plan_id not in found.plans:
        raise NotEntitled("Your plan does not include this model.")
    # A release without routes may have added the model.
    routes = [_Route(*each) for each in found.routes] or [_only_route(found.provider_name)]
    able = [each for each in routes if surface in _surfaces(each)]
    if not able:
        others = sorted({each for route in routes for each in _surfaces(route)})
        detail = f"This model does not answer here; it does on: {', '.join(others)}."
        raise NotFound(detail, errors=[Fault("/model", "surface", detail)])
    targets = tuple(_target(each) for each in able if each.is_on)
    if not targets:
        raise ProviderUnavailable
    return Choice(wanted, found.output_limit, found.image_tokens, targets)


class _Found(NamedTuple):
    """A model with its plans (none: every plan) and its routes."""

    is_on: bool
    output_limit: int
    image_tokens: int | None
    provider_name: str
    plans: list[int]
    routes: list[list[Any]]


class _Route(NamedTuple):
    """A route and its provider, in the order of the statement."""

    id: int | None
    model: str
    surfaces: list[str]
    tokenizer: str
    factor: str
    input_price: int | None
    cached_input_price: int | None
    output_price: int | None
    cache_write_price: int | None
    provider: str
    is_on: bool
    dialect: str
    base_url: str
    api_key: str | None
    members: str
    calls_per_minute: int | None = None
    read_timeout: int | None = None


# Every call makes this query; the ORM takes longer to write it than the database to answer it.
_MODEL = BatchedStatement(
    """
SELECT model.is_on, model.output_limit, model.image_tokens, model.provider_name,
       ARRAY(SELECT plan_id FROM llmproxy_languagemodel_plans WHERE languagemodel_id = model.id),
       COALESCE(routes.listed, '[]')
FROM llmproxy_languagemodel AS model
CROSS JOIN LATERAL (
    SELECT json_agg(json_build_array(
               route.id, route.provider_name, route.surfaces, route.tokenizer, route.token_factor::text,
               route.input_price, route.cached_input_price, route.output_price,
               route.cache_write_price, provider.name, provider.is_on, provider.dialect, provider.base_url,
               encode(provider.api_key, 'hex'), provider.members,
               provider.calls_per_minute, provider.read_timeout
           ) ORDER BY route."order", route.id) AS listed
    FROM llmproxy_route AS route JOIN llmproxy_provider AS provider ON provider.id = route.provider_id
    WHERE route.model_id = model.id
) AS routes
WHERE model.name = %s
"""
)


def _only_route(provider_name: str) -> _Route:
    """The route of a model without any: to the provider of the settings, without prices."""
    by, factor = tokenizer_of(provider_name), str(Route.FIRST_FACTOR)
    at_default = (Provider.DEFAULT, True, "", "", None, Provider.Members.LISTED)
    return _Route(None, provider_name, [], by, factor, None, None, None, None, *at_default)


def _dialect(route: _Route) -> Dialect:
    is_default = route.provider == Provider.DEFAULT
    return DIALECTS[settings.LLM_PROVIDER if is_default else route.dialect]


def _surfaces(route: _Route) -> set[Surface]:
    """Where the model answers by this route."""
    able = set(_dialect(route).codecs)
    if route.surfaces:
        return able & set(map(Surface, route.surfaces))
    # A model makes embeddings or text, and its name tells which.
    embeds = "embed" in route.model.lower()
    return {each for each in able if (each == Surface.EMBEDDINGS) == embeds}


def _target(route: _Route) -> Target:
    is_default = route.provider == Provider.DEFAULT
    return Target(
        provider=route.provider,
        dialect=_dialect(route),
        base_url=settings.LLM_BASE_URL if is_default else route.base_url,
        key=settings.LLM_API_KEY if is_default else partial(_key_of, route),
        model=route.model,
        measure=Measure(route.tokenizer, Decimal(route.factor)),
        prices=Prices(
            route.input_price,
            route.cached_input_price,
            route.output_price,
            route.cache_write_price,
        ),
        passes_all=route.members == Provider.Members.ALL,
        route_id=route.id,
        calls_per_minute=route.calls_per_minute,
        read_timeout=route.read_timeout,
    )


def target_of(route: Route) -> Target:
    """Where a route leads, whatever its model or provider is switched to."""
    return _target(_read(route))


def surfaces_of(route: Route) -> set[Surface]:
    return _surfaces(_read(route))


def _read(route: Route) -> _Route:
    at = route.provider
    return _Route(
        route.pk,
        route.provider_name,
        route.surfaces,
        route.tokenizer,
        str(route.token_factor),
        route.input_price,
        route.cached_input_price,
        route.output_price,
        route.cache_write_price,
        at.name,
        at.is_on,
        at.dialect,
        at.base_url,
        None if at.api_key is None else bytes(at.api_key).hex(),
        at.members,
    )


def _key_of(route: _Route) -> str:
    """The key of a provider, empty where its server wants none. Raises ``CannotDecrypt``."""
    if route.api_key is None:
        return ""
    place = key_place(name=route.provider, base_url=route.base_url)
    return decrypt(bytes.fromhex(route.api_key), place=place).decode()


class Offered(NamedTuple):
    """A model as callers see it in the list. Limits are in tokens; no ``context_length`` means that it is unknown."""

    name: str
    created_at: datetime | None
    context_length: int | None
    max_output_tokens: int
    surfaces: list[Surface]
    input_modalities: list[str]
    output_modalities: list[str]


def offered(*, caller: Caller) -> list[Offered]:
    """The models that a caller may use, by name."""
    rows = list(LanguageModel.objects.prefetch_related("plans", "routes__provider"))
    models = [row for row in rows if row.is_on and _allows(row, caller)]
    if all(row.name != settings.LLM_DEFAULT_MODEL for row in rows):
        models.append(_default())
    return sorted((as_offered(each) for each in models), key=lambda each: each.name)


def as_offered(model: LanguageModel) -> Offered:
    """A model as callers see it: as an operator says, and else as far as it is known.

    By several routes a call may go, so the shortest published context counts.
    """
    rows = model.routes.all() if model.pk else []
    routes = [_read(each) for each in rows] or [_only_route(model.provider_name)]
    able = {each for route in routes for each in _surfaces(route)}
    embeds = able == {Surface.EMBEDDINGS}
    published = [each.context_length for each in rows if each.context_length is not None]
    known = ["text"] if model.image_tokens is None or embeds else ["text", "image"]
    return Offered(
        name=model.name,
        created_at=model.created_at,
        context_length=model.context_length or min(published, default=None),
        max_output_tokens=0 if embeds else model.output_limit,
        surfaces=sorted(able),
        input_modalities=model.input_modalities or known,
        output_modalities=["embedding"] if embeds else ["text"],
    )


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
