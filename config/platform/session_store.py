"""Sessions of the console and the account pages, stored under a hash of their key.

Only the cookie contains the key: the rows of the table, or of a dump, are not enough to sign in.
"""

from hashlib import sha256
from typing import Any

from django.contrib.sessions.backends.db import SessionStore as PlainSessionStore
from django.contrib.sessions.base_session import AbstractBaseSession
from django.contrib.sessions.models import Session
from django.utils import timezone

# The width of the column; 160 bits of the hash.
LENGTH = 40


def row_key(session_key: str) -> str:
    """The primary key of a session's row."""
    # A key is random and as long as the hash, so that a slow hash would not protect it better.
    return sha256(session_key.encode()).hexdigest()[:LENGTH]


class SessionStore(PlainSessionStore):
    """Django's sessions in the database, except that rows have the hash of the key."""

    def load(self) -> dict[str, Any]:
        key = row_key(self.session_key or "")
        row = Session.objects.filter(session_key=key, expire_date__gt=timezone.now()).first()
        if row is None:
            # Drops the key as well: a client must not choose the key of a new session (session fixation).
            self.flush()
            return {}
        return self.decode(row.session_data)

    def exists(self, session_key: str) -> bool:
        return super().exists(row_key(session_key))

    def create_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        row = super().create_model_instance(data)
        row.session_key = row_key(row.session_key)
        return row

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            super().delete(row_key(key))
