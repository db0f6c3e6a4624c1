"""Finds the models that a caller may use."""

from typing import NamedTuple

from django.conf import settings

from config.api.problems import Fault, NotFound
from licensing.callers import Caller
from licensing.permissions import NotEntitled
from llmproxy.models import LanguageModel


class Choice(NamedTuple):
    """The model of a call. Limits are in tokens; no ``image_tokens`` means the provider's default."""

    name: str
    provider_name: str
    output_limit: int
    image_tokens: int | None


def choose(name: str | None, *, caller: Caller) -> Choice:
    """Returns the model of a call; without a name, the default one.

    Raises ``NotFound`` for a model that is unknown or switched off, ``NotEntitled`` for a model of other plans.
    """
    wanted = name or settings.LLM_DEFAULT_MODEL
    # One row for each plan of the model.
    rows = list(
        LanguageModel.objects.filter(name=wanted).values_list(*Choice._fields, "is_on", "plans")
    )
    if not rows and wanted == settings.LLM_DEFAULT_MODEL:
        default = _default()
        return Choice(*(getattr(default, name) for name in Choice._fields))
    if not rows or not rows[0][4]:
        fault = Fault("/model", "unknown", "There is no model of this name.")
        raise NotFound(fault.detail, errors=[fault])
    if not {row[5] for row in rows} & {None, caller.plan_id}:
        raise NotEntitled("Your plan does not include this model.")
    return Choice(*rows[0][:4])


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
            "of output. Add a row of that name to change this."
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
