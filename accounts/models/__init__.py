"""The models of people, clients, sessions, signing keys, connections and the audit log."""

from accounts.models.audit import AuditEvent, AuditPosition
from accounts.models.connections import Connection, ConnectionAttempt, ConnectionRevocation
from accounts.models.factors import Authenticator, ConsoleSession, RecoveryCodes, SetUpCode
from accounts.models.keys import SigningKey
from accounts.models.operators import Operator
from accounts.models.passwords import PasswordLink
from accounts.models.people import Client, Role, User
from accounts.models.sessions import RefreshToken, Session

__all__ = [
    "AuditEvent",
    "AuditPosition",
    "Authenticator",
    "Client",
    "Connection",
    "ConnectionAttempt",
    "ConnectionRevocation",
    "ConsoleSession",
    "Operator",
    "PasswordLink",
    "RecoveryCodes",
    "RefreshToken",
    "Role",
    "Session",
    "SetUpCode",
    "SigningKey",
    "User",
]
