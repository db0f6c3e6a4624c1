"""Faults of what the service needs, and their effects on callers and on every sum; see docs/faults.md."""
