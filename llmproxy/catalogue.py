"""Which models there are, and which of them a caller may use."""

from typing import NamedTuple

from django.conf import settings

from config.api.problems import Fault, NotFound
from licensing.callers import Caller
from licensing.permissions import NotEntitled
from llmproxy.models import LanguageModel


class Choice(NamedTuple):
    """The model of a call. Limits in tokens; no ``image_tokens`` means what is usual at the provider."""

    name: str
    provider_name: str
    output_limit: int
    image_tokens: int | None


def choose(name: str | None, *, caller: Caller) -> Choice:
    """The model of a call; without a name, the default one. Rows are read anew for each call.

    Raises ``NotFound`` for a model that is unknown or switched off, ``NotEntitled`` for another plan's.
    """
    wanted = name or settings.LLM_DEFAULT_MODEL
    found = LanguageModel.objects.filter(name=wanted)
    # One row for each plan that the model is kept to.
    rows = list(
        found.values_list("name", "provider_name", "output_limit", "image_tokens", "is_on", "plans")
    )
    if not rows and wanted == settings.LLM_DEFAULT_MODEL:
        default = _default()
        return Choice(
            default.name, default.provider_name, default.output_limit, default.image_tokens
        )
    if not rows or not rows[0][4]:
        fault = Fault("/model", "unknown", "There is no model of this name.")
        raise NotFound(fault.detail, errors=[fault])
    if not {row[5] for row in rows} & {None, caller.plan_id}:
        raise NotEntitled("Your plan does not include this model.")
    return Choice(*rows[0][:4])


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
