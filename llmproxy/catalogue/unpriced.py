"""Models without prices: the ledger knows no cost of their calls, so no budget counts them."""

from django.conf import settings
from django.db.models import Exists, OuterRef

from llmproxy.models import LanguageModel, Route


def unpriced_models() -> list[str]:
    """The names of the models in use of which some calls have no prices, by any of their routes.

    Also of a default model that has no row.
    """
    routes = Route.objects.filter(model=OuterRef("pk"))
    is_known = Exists(routes) & ~Exists(routes.filter(input_price=None, provider__is_on=True))
    rows = LanguageModel.objects.annotate(is_known=is_known)
    known = {
        name: is_known or not is_on
        for name, is_on, is_known in rows.values_list("name", "is_on", "is_known")
    }
    known.setdefault(settings.LLM_DEFAULT_MODEL, False)
    return sorted(name for name, is_known in known.items() if not is_known)


def unpriced_warning() -> str | None:
    """A warning about models without prices, for operators."""
    if not (names := unpriced_models()):
        return None
    return f"Budgets do not count the calls of models without prices: {', '.join(names)}."
