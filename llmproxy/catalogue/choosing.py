"""Finds the models that a caller may use."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet

from config.platform.problems.problem import Fault, InvalidRequest, NotFound
from licensing.callers import Caller
from licensing.models import Plan
from licensing.permissions import NotEntitled
from llmproxy.catalogue.limit_names import limit_name
from llmproxy.catalogue.member_names import member_names, passes_all
from llmproxy.catalogue.vendors import fetches
from llmproxy.dialects.by_name import DIALECTS
from llmproxy.dialects.protocol import Dialect, ProviderUnavailable, Target
from llmproxy.models import LanguageModel, Provider, Route, is_known_to_think, tokenizer_of
from llmproxy.prompts import image_addresses
from llmproxy.prompts.estimates import Measure
from llmproxy.requests.call_request import CallRequest, Surface
from usage.costs import Prices


class UnknownModel(NotFound):
    """No model of the name that a call gives."""

    sdk_code = "model_not_found"


def unknown_model(name: str) -> UnknownModel:
    fault = Fault("/model", "unknown", "There is no model with this name.")
    detail = f"There is no model {name!r}. GET /v1/llm/models lists those of your plan."
    return UnknownModel(detail, errors=[fault])


def answers_elsewhere(surfaces: Iterable[Surface]) -> NotFound:
    """The refusal of a model that is not on a caller's surface: it is on these."""
    detail = f"This model is not available at this address, but at: {', '.join(sorted(surfaces))}."
    return NotFound(detail, errors=[Fault("/model", "surface", detail)])


class Choice(NamedTuple):
    """The model of a call. Limits are in tokens; no ``image_tokens`` means the provider's default.

    No ``context_length`` means that it is unknown. ``targets`` are those of its routes that have the call's surface,
    the first to be asked first.
    """

    name: str
    output_limit: int
    image_tokens: int | None
    targets: tuple[Target, ...]
    context_length: int | None = None


def choose(name: str | None, *, surface: Surface, caller: Caller) -> Choice:
    """Returns the model of a call; without a name, the default one.

    Raises ``UnknownModel`` for a model that is unknown or switched off, ``NotFound`` for one that is not on this
    surface, ``NotEntitled`` for a model of other plans, ``ProviderUnavailable`` where all its providers are off.
    """
    wanted = name or settings.LLM_DEFAULT_MODEL
    model, routes = known_model(wanted, caller=caller)
    check_plan(model, caller)
    return choice_of(model, routes, surface=surface)


def known_model(name: str, *, caller: Caller) -> tuple[LanguageModel, list[Route]]:
    """The model of this name with its routes. Raises ``UnknownModel`` also for one that is switched off."""
    model, routes = _model(name, caller=caller)
    if model is None or not model.is_on:
        raise unknown_model(name)
    return model, routes


def check_plan(model: LanguageModel, caller: Caller) -> None:
    """Raises ``NotEntitled`` for a model of other plans."""
    if not _allows(model, caller):
        raise NotEntitled("Your plan does not include this model.")


def choice_of(model: LanguageModel, routes: list[Route], *, surface: Surface) -> Choice:
    """Raises ``NotFound`` where the model is not on this surface, ``ProviderUnavailable`` where providers are off."""
    able = [each for each in routes if surface in surfaces_of(each)]
    if not able:
        raise answers_elsewhere({each for route in routes for each in surfaces_of(route)})
    targets = tuple(target_of(each) for each in able if each.provider.is_on)
    if not targets:
        raise ProviderUnavailable
    # By several routes a call may go, so the longest published context is the most that is possible.
    published = [each.context_length for each in able if each.context_length is not None]
    context_length = model.context_length or max(published, default=None)
    return Choice(model.name, model.output_limit, model.image_tokens, targets, context_length)


def able_targets(targets: Sequence[Target], request: CallRequest) -> list[Target]:
    """The targets that can take a request. It is held to the first, whose faults it is refused for."""
    able: list[Target] = []
    for target in targets:
        try:
            target.check(request)
            # Members unknown to the dialect are refused before they are read.
            image_addresses.check(request.fetched_images(), fetches=target.fetches)
            if not target.fetches:
                image_addresses.check(request.unlisted_addresses(), fetches=False)
        except InvalidRequest:
            if not able:
                raise
        else:
            able.append(target)
    return able


# Models with their plans and routes, by name and plan, each as of a version of the catalogue.
_kept: dict[tuple[str, int], tuple[UUID, LanguageModel, list[Route]]] = {}


def _model(name: str, *, caller: Caller) -> tuple[LanguageModel | None, list[Route]]:
    """The model of this name with its routes; without a row for it, the default one.

    It is read again once the caller's plan has another version, which triggers set with each change of the catalogue.
    """
    assert caller.plan_id is not None
    kept = _kept.get((name, caller.plan_id))
    if kept is not None and kept[0] == caller.catalogue_version:
        return kept[1:]
    # Before the model, which so is never older.
    plan = Plan.objects.only("catalogue_version").get(pk=caller.plan_id)
    # PostgreSQL stores no NUL, so no model has one.
    model = None if "\0" in name else _with_routes().filter(name=name).first()
    if model is None and name == settings.LLM_DEFAULT_MODEL:
        model = _default()
    if model is None:
        return None, []
    routes = _routes(model)
    _kept[name, plan.pk] = plan.catalogue_version, model, routes
    return model, routes


def _with_routes() -> QuerySet[LanguageModel]:
    return LanguageModel.objects.prefetch_related("plans", "routes__provider")


def _routes(model: LanguageModel) -> list[Route]:
    """The routes of a model, the first to be asked first."""
    # A release without routes may have added the model.
    return (list(model.routes.all()) if model.pk else []) or [_only_route(model.provider_name)]


def _only_route(provider_name: str) -> Route:
    """The route of a model without any: to the provider of the settings, without prices."""
    known = Provider.objects.filter(name=Provider.DEFAULT).first()
    provider = known or Provider(name=Provider.DEFAULT)
    return Route(
        provider=provider, provider_name=provider_name, tokenizer=tokenizer_of(provider_name)
    )


def _dialect(provider: Provider) -> Dialect:
    is_default = provider.name == Provider.DEFAULT
    return DIALECTS[settings.LLM_PROVIDER if is_default else provider.dialect]


def surfaces_of(route: Route) -> set[Surface]:
    """Returns the surfaces on which a model answers by this route."""
    able = set(_dialect(route.provider).codecs)
    if route.surfaces:
        return able & set(map(Surface, route.surfaces))
    # A model makes embeddings or text, and its name tells which.
    embeds = "embed" in route.provider_name.lower()
    return {each for each in able if (each == Surface.EMBEDDINGS) == embeds}


def target_of(route: Route) -> Target:
    """Returns the target of a route, whatever its model or provider is switched to."""
    provider = route.provider
    is_default = provider.name == Provider.DEFAULT
    return Target(
        provider=provider.name,
        dialect=_dialect(provider),
        base_url=settings.LLM_BASE_URL if is_default else provider.base_url,
        key=settings.LLM_API_KEY if is_default else partial(_key_of, provider),
        model=route.provider_name,
        measure=Measure(route.tokenizer, route.token_factor),
        prices=Prices(
            route.input_price,
            route.cached_input_price,
            route.output_price,
            route.cache_write_price,
        ),
        passes_all=passes_all(provider),
        members=member_names(provider),
        fetches=fetches(provider),
        limit_name=limit_name(provider, model=route.provider_name),
        route_id=route.pk,
        calls_per_minute=provider.calls_per_minute,
        read_timeout=provider.read_timeout,
        thinks=route.thinks or is_known_to_think(route.provider_name),
    )


def _key_of(provider: Provider) -> str:
    """The key of a provider, empty where its server wants none. Raises ``CannotDecrypt``."""
    return "" if provider.api_key is None else provider.unseal("api_key").decode()


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
    rows = list(_with_routes())
    models = [row for row in rows if row.is_on and _allows(row, caller)]
    if all(row.name != settings.LLM_DEFAULT_MODEL for row in rows):
        models.append(_default())
    return sorted((as_offered(each) for each in models), key=lambda each: each.name)


def as_offered(model: LanguageModel) -> Offered:
    """A model as callers see it: as an operator says, and else as far as it is known.

    By several routes a call may go, so the shortest published context counts.
    """
    routes = _routes(model)
    able = {each for route in routes for each in surfaces_of(route)}
    embeds = able == {Surface.EMBEDDINGS}
    published = [each.context_length for each in routes if each.context_length is not None]
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


def default_model_warning() -> str | None:
    """A warning about the default model for operators; None where its row is on and for every plan."""
    name = settings.LLM_DEFAULT_MODEL
    row = LanguageModel.objects.filter(name=name).prefetch_related("plans").first()
    if row is None:
        limit = _default().output_limit
        return (
            f"LLM_DEFAULT_MODEL is {name}, which is not listed here: every plan may use it, with up to {limit:,} "
            "tokens of output, and its calls have no prices, so budgets do not count them. "
            "Add a model of that name to change this."
        )
    if not row.is_on:
        return f"LLM_DEFAULT_MODEL is {name}, which is off: calls that name no model are refused."
    if row.plans.all():
        return f"LLM_DEFAULT_MODEL is {name}, which only some plans include: callers on others have to name a model."
    return None


def _allows(model: LanguageModel, caller: Caller) -> bool:
    plans = {plan.pk for plan in model.plans.all()} if model.pk else set()
    return not plans or caller.plan_id in plans


def _default() -> LanguageModel:
    """The default model of the settings, for as long as it has no row."""
    name = settings.LLM_DEFAULT_MODEL
    return LanguageModel(name=name, provider_name=name)
