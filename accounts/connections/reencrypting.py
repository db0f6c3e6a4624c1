"""Re-encrypts encrypted columns under the newest key, at their places: tokens of connections, keys of authenticator
apps, and those of higher apps. Signing keys have a rule of their own."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import BinaryField, QuerySet
from django.db.models.functions import Substr

from accounts.columns import ENCRYPTED
from accounts.models import (
    Authenticator,
    Connection,
    ConnectionAttempt,
    ConnectionRevocation,
    SigningKey,
)
from config.platform.encryption import BOUND, CannotDecrypt, renewed

AT_A_TIME = 200
_COLUMNS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (Authenticator, ("key",)),
    (Connection, ("access_token", "refresh_token")),
    (ConnectionAttempt, ("verifier",)),
    (ConnectionRevocation, ("tokens",)),
)


def reencrypt() -> tuple[int, int]:
    """Re-encrypts values under older keys, or bound to no row; returns the numbers of renewed and unreadable ones.

    A value is replaced only if it has not changed meanwhile, so a concurrent refresh wins; safe to run twice.
    """
    moved = unreadable = 0
    for model, columns in encrypted_columns():
        last = 0
        while rows := list(model.objects.filter(pk__gt=last).order_by("pk")[:AT_A_TIME]):
            for row in rows:
                for column in columns:
                    old = getattr(row, column)
                    try:
                        new = None if old is None else renewed(bytes(old), place=row.place(column))
                    except CannotDecrypt:
                        unreadable += 1
                        continue
                    if new:
                        same = model.objects.filter(pk=row.pk, **{column: bytes(old)})
                        moved += same.update(**{column: new})
            last = rows[-1].pk
    return moved, unreadable


def unbound(*, at: datetime) -> int:
    """The number of values of earlier releases, bound to no row, in all columns and in the keys that verify."""
    kept = [
        (model.objects.all(), column)
        for model, columns in encrypted_columns()
        for column in columns
    ]
    kept.append((SigningKey.objects.verifying(at=at), "private_key"))
    return sum(_unbound(rows, column) for rows, column in kept)


def _unbound(rows: QuerySet[Any], column: str) -> int:
    given = rows.exclude(**{column: None})
    begun = given.annotate(begin=Substr(column, 1, len(BOUND), output_field=BinaryField()))
    return int(begun.exclude(begin=BOUND).count())


def encrypted_columns() -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Every model with encrypted columns, but for the keys that sign."""
    yield from _COLUMNS
    yield from ((each.model, (each.column,)) for each in ENCRYPTED)
