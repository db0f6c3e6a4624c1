"""The operators' pages about the ledger, overrides, calls in flight and attempts that were left."""

from usage.admin import calls, ledger, left_attempts, overrides

__all__ = ["calls", "ledger", "left_attempts", "overrides"]
