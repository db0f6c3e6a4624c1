"""The operators' pages of sessions, keys, connections and the audit log, and the actions on people."""

from accounts.admin import audit, connections, keys, sessions

__all__ = ["audit", "connections", "keys", "sessions"]
