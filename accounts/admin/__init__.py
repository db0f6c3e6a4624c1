"""The operators' pages about sessions, keys, connections and the audit log, and what is done to people."""

from accounts.admin import audit, connections, keys, sessions

__all__ = ["audit", "connections", "keys", "sessions"]
