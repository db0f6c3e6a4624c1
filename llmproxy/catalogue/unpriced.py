"""Models without prices: the ledger has no cost of their calls, so no budget counts them."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import ProgrammingError, transaction
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


def models_have_prices(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None, **options: Any
) -> list[checks.CheckMessage]:
    """Names models without prices, for ``check --database default``."""
    if not databases:
        return []
    try:
        # The tables of a database that is yet to be migrated may lack a column, or be none.
        with transaction.atomic():
            warning = unpriced_warning()
    except ProgrammingError:
        warning = None
    hint = "Run manage.py update_prices --write, or set their prices in the console."
    return [checks.Info(warning, hint=hint, id="llmproxy.I001")] if warning else []


def unpriced_warning() -> str | None:
    """A warning about models without prices, for operators."""
    if not (names := unpriced_models()):
        return None
    return f"Budgets do not count calls to models without prices: {', '.join(names)}."


checks.register(models_have_prices, checks.Tags.database)
