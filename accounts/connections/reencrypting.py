"""Encrypting what is kept of connections under the newest key, so that older keys can be taken away.

New tokens are under the newest key anyway; this sees to those that nobody has renewed since.
"""

from typing import Any

from accounts.models import Connection, ConnectionAttempt, ConnectionRevocation
from config.encryption import CannotDecrypt, decrypt, encrypt, is_current

AT_A_TIME = 200
_COLUMNS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (Connection, ("access_token", "refresh_token")),
    (ConnectionAttempt, ("verifier",)),
    (ConnectionRevocation, ("tokens",)),
)


def reencrypt() -> tuple[int, int]:
    """Gives the number of values that were encrypted anew, and of those that no key opens any more.

    A row at a time and only if it is still what was read, so a refresh meanwhile wins; safe to run twice.
    """
    renewed = unreadable = 0
    for model, columns in _COLUMNS:
        last = 0
        while rows := list(model.objects.filter(pk__gt=last).order_by("pk")[:AT_A_TIME]):
            for row in rows:
                for column in columns:
                    old = getattr(row, column)
                    if old is None or is_current(bytes(old)):
                        continue
                    try:
                        new = encrypt(decrypt(bytes(old)))
                    except CannotDecrypt:
                        unreadable += 1
                        continue
                    same = model.objects.filter(pk=row.pk, **{column: bytes(old)})
                    renewed += same.update(**{column: new})
            last = rows[-1].pk
    return renewed, unreadable
