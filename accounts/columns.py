"""Rows and columns of the apps above that name people or are encrypted, declared by each app in ``AppConfig.ready``."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import Model, QuerySet

from config.platform.declarations import Declarations


@dataclass(frozen=True, slots=True)
class PersonalRows:
    """Rows of a ``user`` that are erased with the person, by a name for the operator."""

    name: str
    model: type[Model]

    def of(self, user_id: UUID) -> QuerySet[Any]:
        return QuerySet(self.model).filter(user=user_id)


@dataclass(frozen=True, slots=True)
class PersonalColumn:
    """A column that is emptied as the person is erased, in rows of a ``user`` that stay."""

    name: str
    model: type[Model]
    column: str

    def of(self, user_id: UUID) -> QuerySet[Any]:
        return QuerySet(self.model).filter(user=user_id, **{f"{self.column}__isnull": False})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a model."""

    model: type[Model]
    column: str


def _label(each: Column) -> str:
    return f"{each.model._meta.label}.{each.column}"  # noqa: SLF001 - Django's documented API


PERSONAL_ROWS: Final = Declarations[PersonalRows](lambda rows: rows.name)
PERSONAL_COLUMNS: Final = Declarations[PersonalColumn](lambda column: column.name)
# Columns that name a person by email and follow a change of it.
SIGNED_BY_EMAIL: Final = Declarations[Column](_label)
# Columns that are encrypted again with those of accounts.
ENCRYPTED: Final = Declarations[Column](_label)
