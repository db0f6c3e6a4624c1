"""Rows of identity: who there is, where they are signed in, what signs their tokens, and what was done."""

from accounts.models.audit import AuditEvent
from accounts.models.connections import Connection, ConnectionAttempt, ConnectionRevocation
from accounts.models.keys import SigningKey
from accounts.models.passwords import PasswordLink
from accounts.models.people import Client, User
from accounts.models.sessions import RefreshToken, Session

__all__ = [
    "AuditEvent",
    "Client",
    "Connection",
    "ConnectionAttempt",
    "ConnectionRevocation",
    "PasswordLink",
    "RefreshToken",
    "Session",
    "SigningKey",
    "User",
]
