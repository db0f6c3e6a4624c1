"""Models without prices: the ledger knows no cost of their calls, so no budget counts them."""

from django.conf import settings
from django.db.models import OuterRef, Subquery

from llmproxy.models import LanguageModel, Route


def unpriced_models() -> list[str]:
    """The names of the models in use whose calls have no prices, also of a default model that has no row."""
    first = Route.objects.filter(model=OuterRef("pk")).order_by("order", "pk")
    price = Subquery(first.values("input_price")[:1])
    rows = LanguageModel.objects.annotate(price=price).values_list("name", "is_on", "price")
    known = {name: not is_on or price is not None for name, is_on, price in rows}
    known.setdefault(settings.LLM_DEFAULT_MODEL, False)
    return sorted(name for name, is_known in known.items() if not is_known)


def unpriced_warning() -> str | None:
    """A warning about models without prices, for operators."""
    if not (names := unpriced_models()):
        return None
    return f"Budgets do not count the calls of models without prices: {', '.join(names)}."
