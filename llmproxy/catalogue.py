"""Which models there are, and which of them a caller may use."""

from typing import NamedTuple

from django.conf import settings
from psycopg.types.numeric import Int8

from config.api.problems import Fault, NotFound
from config.database import prepared
from licensing.callers import Caller
from licensing.permissions import NotEntitled
from llmproxy.models import LanguageModel
from usage.caps import Terms


class Choice(NamedTuple):
    """The model of a call. Limits in tokens; no ``image_tokens`` means what is usual at the provider."""

    name: str
    provider_name: str
    output_limit: int
    image_tokens: int | None


# Asked for every call, so not in Django's way: whoever asks pays for writing the statement anew.
_CHOICE = """
SELECT name, provider_name, output_limit, image_tokens, is_on,
       NOT EXISTS (SELECT 1 FROM llmproxy_languagemodel_plans WHERE languagemodel_id = model.id)
       OR EXISTS (SELECT 1 FROM llmproxy_languagemodel_plans WHERE languagemodel_id = model.id AND plan_id = %s::bigint)
FROM llmproxy_languagemodel AS model WHERE name = %s
"""


def choose(name: str | None, *, caller: Caller) -> Choice:
    """The model of a call; without a name, the default one. Rows are read anew for each call.

    Raises ``NotFound`` for a model that is unknown or switched off, ``NotEntitled`` for another plan's.
    """
    wanted = name or settings.LLM_DEFAULT_MODEL
    with prepared() as cursor:
        cursor.execute(_CHOICE, (caller.plan_id, wanted))
        row = cursor.fetchone()
    if row is None and wanted == settings.LLM_DEFAULT_MODEL:
        default = _default()
        return Choice(
            default.name, default.provider_name, default.output_limit, default.image_tokens
        )
    is_on, is_allowed = row[4:] if row is not None else (False, False)
    if row is None or not is_on:
        fault = Fault("/model", "unknown", "There is no model of this name.")
        raise NotFound(fault.detail, errors=[fault])
    if not is_allowed:
        raise NotEntitled("Your plan does not include this model.")
    return Choice(*row[:4])


_DEFAULT_LIMIT = Int8(LanguageModel().output_limit)

# The same for the statement that admits a call, which is how nearly all of them are chosen.
_TERMS = """
SELECT COALESCE(model.name, %(default)s::text) AS model,
       %(text)s::bigint + %(images)s::bigint * COALESCE(image_tokens, %(usual)s::bigint) AS input,
       LEAST(%(most)s::bigint, COALESCE(output_limit, %(default_limit)s::bigint)) AS wanted,
       COALESCE(provider_name, %(default)s::text) AS provider_name,
       COALESCE(output_limit, %(default_limit)s::bigint) AS output_limit, image_tokens
FROM (SELECT) AS one LEFT JOIN llmproxy_languagemodel AS model ON name = %(name)s
WHERE COALESCE(is_on, %(default)s::text = %(name)s::text) AND (
    SELECT COALESCE(bool_or(plan_id IS NOT DISTINCT FROM c.plan_id), true)
    FROM llmproxy_languagemodel_plans WHERE languagemodel_id = model.id
)
"""


def terms(name: str | None, *, text: int, images: int, usual: int, most: int | None) -> Terms:
    """What a call to that model, or to the default one, wants to spend; no row where :func:`choose` raises.

    Tokens: ``text`` is the prompt's without its ``images``, of which each costs ``usual`` where the model's row does
    not say otherwise; ``most`` is the output wanted. The rows are a ``Choice`` from their third column on but for the
    name, which is the first.
    """
    default = settings.LLM_DEFAULT_MODEL
    return Terms(
        _TERMS,
        {
            "name": name or default,
            "default": default,
            "default_limit": _DEFAULT_LIMIT,
            "text": Int8(text),
            "images": Int8(images),
            "usual": Int8(usual),
            "most": None if most is None else Int8(most),
        },
    )


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
