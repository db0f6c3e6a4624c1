"""The order of a list by a column that may be empty."""

from typing import Any

from django.db.models import ExpressionWrapper
from django.db.models.expressions import OrderBy


class EmptyLast(ExpressionWrapper):  # type: ignore[type-arg]
    """Sorts rows without a value last in both directions: PostgreSQL takes an empty value for the greatest."""

    def asc(self, **options: Any) -> OrderBy:
        return super().asc(**{"nulls_last": True, **options})

    def desc(self, **options: Any) -> OrderBy:
        return super().desc(**{"nulls_last": True, **options})
