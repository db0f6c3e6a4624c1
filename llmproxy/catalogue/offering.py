"""Adds and changes language models."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from accounts.audit import Actor, check_reason, record
from config.platform.problems.constraints import refused_as
from config.platform.problems.problem import Fault, InvalidRequest
from licensing.models import Plan
from llmproxy.catalogue.routing import rename
from llmproxy.models import LanguageModel, Provider, Route
from usage.limits import LEAST_OUTPUT

NAME_TAKEN = Fault("/name", "unique", "A model with this name already exists.")
DEFAULT_STAYS = "This is the default model (LLM_DEFAULT_MODEL) for calls that name no model."


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTerms:
    """The properties of a model. Limits are in tokens; no ``image_tokens`` means the provider's default, no ``plans``
    every plan.
    """

    name: str
    provider_name: str
    output_limit: int
    image_tokens: int | None = None
    is_on: bool
    plans: list[Plan]
    context_length: int | None = None
    input_modalities: Sequence[str] = ()


def add_model(*, terms: ModelTerms, by: Actor, now: datetime) -> LanguageModel:
    """Adds a model. Raises ``InvalidRequest`` for terms that are not possible."""
    with transaction.atomic():
        model = _write(LanguageModel(), terms, now=now)
        record("language_model:added", model, by=by, now=now, after=_audited(model))
    return model


def change_model(*, model_id: int, terms: ModelTerms, by: Actor, now: datetime) -> LanguageModel:
    """Changes a model; running calls are not affected.

    Raises ``InvalidRequest`` for terms that are not possible. The default model can be neither renamed nor switched
    off, because calls that name no model use it.
    """
    with transaction.atomic():
        model = LanguageModel.objects.select_for_update(no_key=True).get(pk=model_id)
        if model.name == settings.LLM_DEFAULT_MODEL and terms.name != model.name:
            raise InvalidRequest(errors=[Fault("/name", "invalid", DEFAULT_STAYS)])
        before = _audited(model)
        model = _write(model, terms, now=now)
        after = _audited(model)
        record("language_model:changed", model, by=by, now=now, before=before, after=after)
    return model


def switch_model(
    *, model_id: int, on: bool, reason: str, by: Actor, now: datetime
) -> LanguageModel:
    """Offers a model again, or no more; running calls go on. Raises ``InvalidRequest`` for the default model's end."""
    check_reason(reason)
    with transaction.atomic():
        model = LanguageModel.objects.select_for_update(no_key=True).get(pk=model_id)
        if model.name == settings.LLM_DEFAULT_MODEL and not on:
            raise InvalidRequest(errors=[Fault("", "invalid", DEFAULT_STAYS)])
        before, model.is_on = {"on": model.is_on}, on
        model.save(update_fields=["is_on"])
        changed = {"before": before, "after": {"on": on}}
        record("language_model:changed", model, by=by, now=now, reason=reason, **changed)
    return model


def _write(model: LanguageModel, terms: ModelTerms, *, now: datetime) -> LanguageModel:
    if terms.output_limit < LEAST_OUTPUT:
        detail = f"The output limit must be at least {LEAST_OUTPUT} tokens."
        raise InvalidRequest(errors=[Fault("/output_limit", "min_value", detail)])
    if terms.name == settings.LLM_DEFAULT_MODEL and not terms.is_on:
        raise InvalidRequest(errors=[Fault("/is_on", "invalid", DEFAULT_STAYS)])
    is_renamed = model.name != terms.name
    model.name, model.provider_name = terms.name, terms.provider_name
    model.output_limit, model.is_on = terms.output_limit, terms.is_on
    model.image_tokens, model.context_length = terms.image_tokens, terms.context_length
    model.input_modalities = list(terms.input_modalities)
    with refused_as(NAME_TAKEN):
        model.save()
    model.plans.set(terms.plans)
    if is_renamed:
        # The ledger may hold calls of another model under the new name.
        model.routes.update(learns_since=now)
    write_route(model, now=now)
    return model


def write_route(model: LanguageModel, *, now: datetime) -> None:
    """Gives the model its route to the provider of the settings, unless it has routes to others alone."""
    provider, _ = Provider.objects.get_or_create(name=Provider.DEFAULT)
    of_both = {"model": model, "provider": provider}
    route = Route.objects.select_for_update(no_key=True).filter(**of_both).first()
    if route is None and model.routes.exists():
        return
    route = route or Route(**of_both)
    rename(route, model.provider_name, now=now)
    route.save()


def _audited(model: LanguageModel) -> dict[str, Any]:
    """The model's fields in the audit log."""
    return {
        "name": model.name,
        "provider_name": model.provider_name,
        "tokenizers": list(model.routes.values_list("tokenizer", flat=True)),
        "output_limit": model.output_limit,
        "image_tokens": model.image_tokens,
        "context_length": model.context_length,
        "input_modalities": model.input_modalities,
        "on": model.is_on,
        "plans": list(model.plans.order_by("name").values_list("name", flat=True)),
    }
