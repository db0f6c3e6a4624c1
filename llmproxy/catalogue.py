"""Which models there are, and which of them a caller may use."""

from django.conf import settings

from config.problems import NotFound, Problem
from licensing.callers import Caller
from llmproxy.models import LanguageModel


class NotEntitled(Problem):
    code = "not_entitled"
    status = 403
    title = "Not part of your plan"
    default_detail = "Your plan does not include this model."


def choose(name: str | None, *, caller: Caller) -> LanguageModel:
    """The model of a call; without a name, the default one.

    Raises ``NotFound`` for a model that is unknown or switched off, ``NotEntitled`` for another plan's.
    """
    wanted = name or settings.LLM_DEFAULT_MODEL
    model = LanguageModel.objects.filter(name=wanted).prefetch_related("plans").first()
    if model is None and wanted == settings.LLM_DEFAULT_MODEL:
        return _default()
    if model is None or not model.is_on:
        raise NotFound("There is no model of this name.")
    if not _allows(model, caller):
        raise NotEntitled
    return model


def offered(*, caller: Caller) -> list[LanguageModel]:
    """The models a caller may choose from, by name."""
    rows = list(LanguageModel.objects.prefetch_related("plans"))
    models = [row for row in rows if row.is_on and _allows(row, caller)]
    if all(row.name != settings.LLM_DEFAULT_MODEL for row in rows):
        models.append(_default())
    return sorted(models, key=lambda each: each.name)


def _allows(model: LanguageModel, caller: Caller) -> bool:
    plans = {plan.pk for plan in model.plans.all()}
    return not plans or caller.plan_id in plans


def _default() -> LanguageModel:
    """The default model as settings name it, for as long as operators have no row of that name."""
    name = settings.LLM_DEFAULT_MODEL
    return LanguageModel(name=name, provider_name=name)
