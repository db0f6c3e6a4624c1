"""Which models there are, and which of them a caller may use."""

from django.conf import settings

from config.problems import Fault, NotFound
from licensing.callers import Caller
from licensing.permissions import NotEntitled
from llmproxy.models import LanguageModel


def choose(name: str | None, *, caller: Caller) -> LanguageModel:
    """The model of a call; without a name, the default one. Rows are read anew for each call.

    Raises ``NotFound`` for a model that is unknown or switched off, ``NotEntitled`` for another plan's.
    """
    wanted = name or settings.LLM_DEFAULT_MODEL
    model = LanguageModel.objects.filter(name=wanted).prefetch_related("plans").first()
    if model is None and wanted == settings.LLM_DEFAULT_MODEL:
        return _default()
    if model is None or not model.is_on:
        fault = Fault("/model", "unknown", "There is no model of this name.")
        raise NotFound(fault.detail, errors=[fault])
    if not _allows(model, caller):
        raise NotEntitled("Your plan does not include this model.")
    return model


def offered(*, caller: Caller) -> list[LanguageModel]:
    """The models a caller may choose from, by name."""
    rows = list(LanguageModel.objects.prefetch_related("plans"))
    models = [row for row in rows if row.is_on and _allows(row, caller)]
    if all(row.name != settings.LLM_DEFAULT_MODEL for row in rows):
        models.append(_default())
    return sorted(models, key=lambda each: each.name)


def default_is_off() -> bool:
    """Whether calls that name no model are refused; no edit makes it so, but another ``LLM_DEFAULT_MODEL`` can."""
    return LanguageModel.objects.filter(name=settings.LLM_DEFAULT_MODEL, is_on=False).exists()


def what_is_wrong_with_the_default() -> str | None:
    """What an operator should know of the model that calls without a name get, in a sentence; None if nothing."""
    name = settings.LLM_DEFAULT_MODEL
    row = LanguageModel.objects.filter(name=name).prefetch_related("plans").first()
    if row is None:
        limit = _default().output_limit
        return (
            f"LLM_DEFAULT_MODEL is {name}, for which there is no row: everybody may use it under that name, with "
            f"up to {limit:,} tokens of output. Add a row of that name to say otherwise."
        )
    if not row.is_on:
        return f"LLM_DEFAULT_MODEL is {name}, which is off: calls that name no model are refused."
    if row.plans.all():
        return f"LLM_DEFAULT_MODEL is {name}, which is for some plans only: calls of others have to name a model."
    return None


def _allows(model: LanguageModel, caller: Caller) -> bool:
    plans = {plan.pk for plan in model.plans.all()}
    return not plans or caller.plan_id in plans


def _default() -> LanguageModel:
    """The default model as settings name it, for as long as operators have no row of that name."""
    name = settings.LLM_DEFAULT_MODEL
    return LanguageModel(name=name, provider_name=name)
